// Any bytes after an honest hello: a peer that was let in and then sends whatever it likes, to our
// handlers and in answer to our calls. The first byte says whether true frames are made of the rest
// (each type, flags, call, a length and that much payload) or whether it is sent as it is. Nothing
// may crash, hang, leak or exceed the connection's bounds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "wire/connection.h"
#include "wire/memory_stream.h"
#include "wire/plain_seal.h"
#include "wire/wire.pb.h"
#include "world/manual_clock.h"

namespace tutti::wire {
namespace {

constexpr Method<Blob, Blob> kEcho{"fuzz.echo"};
constexpr StreamMethod<Blob, Blob> kEchoStream{"fuzz.stream"};

Task<Result<Blob>> echo(CallContext&, const Blob& request) { co_return request; }

Task<Result<void>> echo_stream(CallContext&, ServerStream<Blob, Blob>& stream) {
  for (;;) {
    auto message = co_await stream.recv();
    if (!message) co_return fail(message.error());
    if (!*message) co_return Result<void>();
    auto sent = co_await stream.send(**message);
    if (!sent) co_return sent;
  }
}

const Methods& methods() {
  static const Methods* made = [] {
    auto* all = new Methods;
    all->add(kEcho, echo);
    all->add(kEchoStream, echo_stream);
    return all;
  }();
  return *made;
}

std::string frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string bytes(kFrameHeaderSize, '\0');
  bytes += payload;
  store_frame_header(as_mutable_bytes(bytes).data(), type, flags, stream, as_bytes(payload));
  return bytes;
}

std::string hello() {
  proto::Hello hello;
  hello.set_lowest_version(1);
  hello.set_highest_version(1);
  hello.set_max_calls(4);
  hello.set_stream_window(kSmallestWindow);
  hello.set_max_message(1 << 20);
  return frame(FrameType::hello, 0, 0, "TUTTI\r\n\x01" + hello.SerializeAsString());
}

// Data and announcements of sizes that meet each other sometimes.
std::string as_large(FrameType type, uint8_t flags, std::string payload) {
  if (type == FrameType::data) return std::string(payload.size() * 256, 'd');
  if ((flags & FrameFlags::large) == 0) return payload;
  const uint64_t total = kMaxInlineMessage + 256 + payload.size() % 8 * 4096;
  std::string announced(sizeof total, '\0');
  store_le(as_mutable_bytes(announced).data(), total);
  return announced;
}

// Frames with true checksums, so that what is behind them is reached.
std::string frames_of(std::string_view bytes) {
  std::string all;
  while (bytes.size() >= 4) {
    const auto type = static_cast<FrameType>(1 + static_cast<uint8_t>(bytes[0]) % kLastFrameType);
    const uint8_t flags = static_cast<uint8_t>(bytes[1]) & FrameFlags::all;
    const uint32_t stream =
        (1U + (static_cast<uint8_t>(bytes[2]) >> 4) % 2) << 16 | static_cast<uint8_t>(bytes[2]) % 4;
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bytes[3]), bytes.size() - 4);
    std::string payload(bytes.substr(4, size));
    bytes.remove_prefix(4 + size);
    payload = as_large(type, flags, std::move(payload));
    if (type == FrameType::request) {
      std::string head(16, '\0');
      store_le(as_mutable_bytes(head).data(), flags % 2 == 0 ? kEcho.id : kEchoStream.id);
      payload = head + payload;
    }
    all += frame(type, flags | (type == FrameType::request ? 1 : 0), stream, payload);
  }
  return all;
}

Task<void> call_out(Clock& clock, Connection& connection) {
  const Blob request = Blob::copy_of(as_bytes(std::string_view("request")));
  const CallOptions soon{.deadline = clock.now() + std::chrono::milliseconds(500)};
  auto reply = co_await connection.call(kEcho, request, soon);
  auto stream = co_await connection.open(kEchoStream, soon);
  if (!stream) co_return;
  for (;;) {
    auto message = co_await stream->recv();
    if (!message || !*message) co_return;
  }
}

Task<void> accept(Clock& clock, std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out) {
  std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
  std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
  ConnectionOptions options{.limits = {.max_calls = 4, .max_message = 1 << 20}, .address = "fuzz"};
  const Limits limits = options.limits;
  auto connection = co_await Connection::greet(clock, std::move(stream), std::move(seal),
                                               Side::accepting, &methods(), std::move(options));
  TUTTI_ASSERT(connection.has_value(), "the hello is honest");
  Scope callers;
  callers.spawn(call_out(clock, **connection));
  callers.spawn(call_out(clock, **connection));
  auto ended = co_await (*connection)->run();
  auto joined = co_await callers.join();
  TUTTI_ASSERT((*connection)->calls_in_flight() == 0, "no call outlives its connection");
  TUTTI_ASSERT((*connection)->budget_in_use() == 0, "no memory outlives its call");
  TUTTI_ASSERT((*connection)->requests_in_use() == 0, "nor its handler");
  TUTTI_ASSERT((*connection)->replies_in_use() == 0, "nor its sending");
  TUTTI_ASSERT((*connection)->queued_bytes() <= limits.max_queued + 2 * limits.max_queued_control,
               "what is queued is bounded");
}

}  // namespace
}  // namespace tutti::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  Executor executor;
  ManualClock clock;
  const auto in = std::make_shared<wire::MemoryPipe>(1 << 20);
  const auto out = std::make_shared<wire::MemoryPipe>(1 << 16);
  Scope root{Scope::Root{}};
  root.spawn(wire::accept(clock, in, out));
  in->inject(wire::hello());
  clock.advance(Duration::zero());
  in->inject(data[0] % 2 == 0 ? wire::frames_of(rest) : std::string(rest));
  clock.advance(std::chrono::seconds(1));
  in->close();
  clock.advance(std::chrono::minutes(2));
  TUTTI_ASSERT(root.size() == 0, "a connection ends with its stream, or for want of life");
  return 0;
}
