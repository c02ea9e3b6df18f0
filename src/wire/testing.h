// Two peers joined in memory, on a clock that tests move. For tests only.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "wire/connection.h"
#include "wire/memory_stream.h"
#include "wire/plain_seal.h"
#include "world/manual_clock.h"

namespace tutti::wire {

inline Blob blob_of(std::string_view text) { return Blob::copy_of(as_bytes(text)); }
inline std::string text_of(const Blob& blob) { return std::string(as_text(blob.bytes())); }

inline constexpr Method<Blob, Blob> kEcho{"test.echo"};
inline constexpr Method<Blob, Blob> kSleep{"test.sleep"};
inline constexpr Method<Blob, Blob> kFail{"test.fail"};
inline constexpr Method<Blob, Blob> kNested{"test.nested"};
inline constexpr Method<Blob, Blob> kStubborn{"test.stubborn"};
inline constexpr Method<Blob, Blob> kGrow{"test.grow"};
inline constexpr StreamMethod<Blob, Blob> kEchoStream{"test.echo_stream"};
inline constexpr StreamMethod<Blob, Blob> kDeaf{"test.deaf"};
inline constexpr StreamMethod<Blob, Blob> kFlood{"test.flood"};

// What each side answers, and a log of what its handlers saw.
struct TestService {
  explicit TestService(Clock& clock) : clock(clock) {
    methods.add(kEcho, *this, &TestService::echo);
    methods.add(kSleep, *this, &TestService::sleep);
    methods.add(kFail, *this, &TestService::fail_it);
    methods.add(kNested, *this, &TestService::nested);
    methods.add(kStubborn, *this, &TestService::stubborn);
    methods.add(kGrow, *this, &TestService::grow);
    methods.add(kEchoStream, *this, &TestService::echo_stream);
    methods.add(kDeaf, *this, &TestService::deaf);
    methods.add(kFlood, *this, &TestService::flood);
  }

  Task<Result<Blob>> echo(CallContext&, const Blob& request) {
    ++started;
    co_return request;
  }
  // Sleeps as many milliseconds as the request says.
  Task<Result<Blob>> sleep(CallContext& call, const Blob& request) {
    ++started;
    last_deadline = call.deadline;
    const Duration time = std::chrono::milliseconds(std::stoi(text_of(request)));
    auto slept = co_await clock.sleep(time);
    if (!slept) ++cancelled;
    if (!slept) co_return fail(slept.error());
    co_return request;
  }
  Task<Result<Blob>> fail_it(CallContext&, const Blob& request) {
    ++started;
    co_return fail(Error(Code::exists, text_of(request)).context("inner").context("outer"));
  }
  // Calls sleep() back at the caller, within its own deadline.
  Task<Result<Blob>> nested(CallContext& call, const Blob& request) {
    const Blob again = request;
    const CallOptions options{.deadline = clock.now() + 1h, .within = &call};
    auto reply = co_await call.connection.call(kSleep, again, options);
    co_return reply;
  }
  // Takes another ten seconds after it was cancelled.
  Task<Result<Blob>> stubborn(CallContext&, const Blob& request) {
    ++started;
    auto slept = co_await clock.sleep_until(kNever);
    ++cancelled;
    const Shield until_done;
    auto done = co_await clock.sleep(10s);
    co_return request;
  }
  // Replies with as many bytes as the request says.
  Task<Result<Blob>> grow(CallContext&, const Blob& request) {
    ++started;
    co_return blob_of(std::string(std::stoul(text_of(request)), 'g'));
  }
  Task<Result<void>> echo_stream(CallContext&, ServerStream<Blob, Blob>& stream) {
    for (;;) {
      auto message = co_await stream.recv();
      if (!message) co_return fail(message.error());
      if (!*message) co_return Result<void>();
      auto sent = co_await stream.send(**message);
      if (!sent) co_return sent;
    }
  }
  // Never reads, and has much to say in the end.
  Task<Result<void>> deaf(CallContext&, ServerStream<Blob, Blob>&) {
    auto slept = co_await clock.sleep_until(kNever);
    ++cancelled;
    co_return fail(slept.error().context(std::string(400, '!')));
  }
  // Sends for ever.
  Task<Result<void>> flood(CallContext&, ServerStream<Blob, Blob>& stream) {
    const Blob kilobyte = Blob::copy_of(as_bytes(std::string(1024, 'f')));
    for (;;) {
      auto sent = co_await stream.send(kilobyte);
      if (!sent) co_return sent;
      ++flooded;
    }
  }

  Clock& clock;
  Methods methods;
  int started = 0;
  int cancelled = 0;
  int flooded = 0;
  Instant last_deadline = kNever;
};

struct TestPeers {
  using SealOf = std::function<std::unique_ptr<Seal>(Side)>;
  static std::unique_ptr<Seal> plain(Side) { return std::make_unique<PlainSeal>(); }

  explicit TestPeers(Limits limits = {}, size_t pipe_capacity = 64 * 1024, SealOf seal_of = plain)
      : seal_of(std::move(seal_of)),
        to_server(std::make_shared<MemoryPipe>(pipe_capacity)),
        to_client(std::make_shared<MemoryPipe>(pipe_capacity)) {
    ConnectionOptions client_options{
        .self = {"c", Role::user, "ann"}, .limits = limits, .address = "mem:1"};
    ConnectionOptions server_options{
        .self = {"c", Role::agent, "node7"}, .limits = limits, .address = "mem:2"};
    root.spawn(bring_up(*this, Side::connecting, client_options));
    root.spawn(bring_up(*this, Side::accepting, server_options));
    clock.advance(0ms);
    REQUIRE(client);
    REQUIRE(server);
  }
  ~TestPeers() {
    if (client) client->close(clock.now() + 1s);
    if (server) server->close(clock.now() + 1s);
    clock.advance(2s);
    CHECK(root.size() == 0);
    if (client) CHECK(client->calls_in_flight() == 0);
    if (server) CHECK(server->calls_in_flight() == 0);
  }

  static Task<void> bring_up(TestPeers& peers, Side side, ConnectionOptions options) {
    const bool connecting = side == Side::connecting;
    auto in = connecting ? peers.to_client : peers.to_server;
    auto out = connecting ? peers.to_server : peers.to_client;
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
    std::unique_ptr<Seal> seal = peers.seal_of(side);
    const Methods* methods = connecting ? &peers.at_client.methods : &peers.at_server.methods;
    auto greeted = co_await Connection::greet(peers.clock, std::move(stream), std::move(seal), side,
                                              methods, std::move(options));
    REQUIRE(greeted.has_value());
    auto& connection = connecting ? peers.client : peers.server;
    connection = std::move(*greeted);
    auto ended = co_await connection->run();
    (connecting ? peers.client_end : peers.server_end) = ended ? "well" : ended.error().text();
  }

  // Calls and notes the reply, or the error's text.
  static Task<void> note_call(TestPeers& peers, Connection& at, Method<Blob, Blob> method,
                              std::string text, CallOptions options) {
    const Blob request = blob_of(text);
    auto reply = co_await at.call(method, request, options);
    peers.codes.push_back(reply ? std::optional<Code>() : reply.error().code());
    peers.log.push_back(reply ? text_of(*reply) : reply.error().text());
  }
  void call(Method<Blob, Blob> method, std::string text, CallOptions options = {}) {
    calls.spawn(note_call(*this, *client, method, std::move(text), options));
  }
  std::string call_now(Method<Blob, Blob> method, std::string text, CallOptions options = {}) {
    call(method, std::move(text), options);
    clock.advance(0ms);
    REQUIRE(!log.empty());
    std::string answer = log.back();
    log.pop_back();
    codes.pop_back();
    return answer;
  }

  // After a crash: who waited on the pipes is gone.
  void forget_streams() {
    for (MemoryPipe* pipe : {to_server.get(), to_client.get()}) {
      pipe->reader = nullptr;
      pipe->writer = nullptr;
    }
  }

  Executor executor;
  ManualClock clock;
  SealOf seal_of;
  std::shared_ptr<MemoryPipe> to_server;
  std::shared_ptr<MemoryPipe> to_client;
  TestService at_client{clock};
  TestService at_server{clock};
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
  std::string client_end;
  std::string server_end;
  std::vector<std::string> log;
  std::vector<std::optional<Code>> codes;  // of the calls in log
  Scope root{Scope::Root{}};
  Scope calls{Scope::Root{}};
};

inline std::string frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string bytes(kFrameHeaderSize, '\0');
  bytes += payload;
  store_frame_header(as_mutable_bytes(bytes).data(), type, flags, stream, as_bytes(payload));
  return bytes;
}

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tutti::wire
