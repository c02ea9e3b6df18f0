#include "wire/courier.h"

#include <malloc.h>

#include "wire/authority.h"
#include "wire/testing.h"
#include "wire/tls.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

constexpr int64_t kNow_s = 1'800'000'000;

// What the seals read the date from.
class FixedDate final : public Clock {
 public:
  Instant now() const override { return {}; }
  int64_t unix_ns() const override { return kNow_s * 1'000'000'000; }

 private:
  void do_arm(Timer&, Instant) override { TUTTI_ASSERT(false, "seals arm no timers"); }
  void do_disarm(Timer&) override {}
};

std::unique_ptr<Seal> plain_seal(Side) { return std::make_unique<PlainSeal>(); }
std::unique_ptr<Seal> tls_seal(Side side) {
  static const FixedDate date;
  static const Authority authority = Authority::create("c", kNow_s).value();
  const bool connecting = side == Side::connecting;
  const IssueOptions who{Role::agent, connecting ? "node8" : "node7"};
  const Certificate certificate = authority.issue(who, kNow_s).value();
  return make_tls_seal(TlsContext::make(certificate).value(), date, {.side = side});
}

using SealOf = std::unique_ptr<Seal> (*)(Side);

// One side of a pair: its courier, and what it was brought.
struct End final : MessageTaker {
  Result<void> take(Bytes message) override {
    messages.emplace_back(as_text(message));
    if (messages.back() == refuses) return fail(Code::invalid, "I will not have that");
    return {};
  }
  void ended(const Error& why) override {
    ++ends;
    end = why.text();
    code = why.code();
  }
  bool post(std::string_view text) { return courier->post(as_bytes(text)); }

  std::unique_ptr<Courier> courier;
  Peer peer;
  std::vector<std::string> messages;
  std::string refuses = "to be refused";
  int ends = 0;
  std::string end;
  std::optional<Code> code;
  Scope strands{Scope::Root{}};
};

struct PairOptions {
  Limits limits = {};
  size_t pipe_capacity = 64 * 1024;
  SealOf seal_of = plain_seal;
  bool run = true;
};

struct Couriers {
  explicit Couriers(PairOptions options = {})
      : to_server(std::make_shared<MemoryPipe>(options.pipe_capacity)),
        to_client(std::make_shared<MemoryPipe>(options.pipe_capacity)) {
    root.spawn(greet(*this, Side::connecting, options));
    root.spawn(greet(*this, Side::accepting, options));
    clock.advance(0ms);
    REQUIRE(client.courier);
    REQUIRE(server.courier);
    if (options.run) run();
  }
  ~Couriers() {
    for (End* end : {&client, &server}) {
      end->strands.cancel();
      clock.advance(0ms);
      CHECK(end->strands.size() == 0);
      end->courier.reset();
    }
    CHECK(root.size() == 0);
  }
  static Task<void> greet(Couriers& pair, Side side, PairOptions options) {
    const bool connecting = side == Side::connecting;
    auto in = connecting ? pair.to_client : pair.to_server;
    auto out = connecting ? pair.to_server : pair.to_client;
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
    std::unique_ptr<Seal> seal = options.seal_of(side);
    ConnectionOptions connection{.self = {"c", Role::agent, connecting ? "node8" : "node7"},
                                 .limits = options.limits,
                                 .address = "mem:1"};
    auto greeted = co_await Courier::greet(pair.clock, std::move(stream), std::move(seal), side,
                                           std::move(connection));
    REQUIRE(greeted.has_value());
    End& end = connecting ? pair.client : pair.server;
    end.courier = std::move(greeted->courier);
    end.peer = std::move(greeted->peer);
  }
  void run() {
    for (End* end : {&client, &server}) end->courier->start(*end, end->strands);
    settle();
  }
  void settle() { clock.advance(0ms); }

  Executor executor;
  ManualClock clock;
  std::shared_ptr<MemoryPipe> to_server;
  std::shared_ptr<MemoryPipe> to_client;
  End client;
  End server;
  Scope root{Scope::Root{}};
};

// Differs everywhere, so that pieces in the wrong place are seen.
std::string long_text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i * 7 + i / 1000) % 26);
  return text;
}

using Messages = std::vector<std::string>;

TEST_CASE("messages arrive in order, both ways, sealed or not") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.seal_of = seal_of});
    Messages sent;
    for (int i = 0; i < 500; ++i) {
      sent.push_back(std::to_string(i) + std::string(static_cast<size_t>(i % 97), '.'));
      CHECK(pair.client.post(sent.back()));
      CHECK(pair.server.post(sent.back()));
      if (i % 7 == 0) pair.settle();
    }
    pair.settle();
    CHECK(pair.client.messages == sent);
    CHECK(pair.server.messages == sent);
    CHECK(pair.client.courier->queued() == 0);
    CHECK(pair.client.ends == 0);
  }
}

TEST_CASE("who greeted knows with whom") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.seal_of = seal_of});
    CHECK(pair.server.peer.identity.name == "node8");
    CHECK(pair.client.peer.identity.name == "node7");
  }
}

TEST_CASE("a message of any length arrives whole, among others") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.seal_of = seal_of});
    Messages sent;
    for (const size_t size :
         {size_t{1}, kMaxFramePayload - 1, kMaxFramePayload, kMaxFramePayload + 1, size_t{3},
          2 * kMaxFramePayload, 2 * kMaxFramePayload + 1, size_t{3'000'000}}) {
      sent.push_back(long_text(size));
      CHECK(pair.client.post(sent.back()));
      sent.emplace_back("between");
      CHECK(pair.client.post(sent.back()));
      pair.settle();
    }
    CHECK(pair.server.messages == sent);
    CHECK(pair.server.ends == 0);
  }
}

TEST_CASE("a message up to the limit is taken, a longer one ends the courier") {
  for (const uint64_t limit : {uint64_t{100'000}, uint64_t{700'000}}) {
    Couriers pair({.limits = {.max_message = limit}});
    CHECK(pair.client.post(long_text(limit)));
    pair.settle();
    CHECK(pair.server.messages == Messages{long_text(limit)});
    CHECK(pair.server.ends == 0);
    CHECK(pair.client.post(long_text(limit + 1)));
    pair.settle();
    CHECK(pair.server.messages.size() == 1);
    CHECK(pair.server.code == Code::corrupt);
    CHECK(has(pair.server.end, "a message of more than"));
  }
}

TEST_CASE("a message arrives whole however it was cut into pieces and they came") {
  const std::string text = long_text(100'000);
  for (const size_t piece : {1UL, 10UL, 1000UL, 20'000UL, 99'999UL}) {
    std::string bytes;
    size_t at = 0;
    for (; at + piece < text.size(); at += piece)
      bytes += frame(FrameType::data, 0, 0, text.substr(at, piece));
    bytes += frame(FrameType::message, 0, 0, text.substr(at));
    Couriers pair;
    for (size_t sent = 0; sent < bytes.size(); sent += 7777) {
      pair.to_server->inject(bytes.substr(sent, 7777));
      pair.settle();
    }
    INFO("pieces of ", piece);
    REQUIRE(pair.server.messages.size() == 1);
    CHECK(pair.server.messages[0] == text);
  }
}

TEST_CASE("pieces of a message that never ends are refused at the limit, not kept") {
  Couriers pair({.limits = {.max_message = 1_MiB}});
  const std::string piece(kMaxFramePayload, 'p');
  for (int i = 0; i < 4; ++i) pair.to_server->inject(frame(FrameType::data, 0, 0, piece));
  pair.settle();
  CHECK(pair.server.ends == 0);
  pair.to_server->inject(frame(FrameType::data, 0, 0, "x"));
  pair.settle();
  CHECK(pair.server.code == Code::corrupt);
}

TEST_CASE("an empty message is a sign of life") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.seal_of = seal_of});
    const uint32_t before = pair.server.courier->heard();
    CHECK(pair.client.post(""));
    pair.settle();
    CHECK(pair.server.courier->heard() != before);
    CHECK(pair.server.messages == Messages{""});
    const uint32_t after = pair.server.courier->heard();
    pair.clock.advance(1h);
    CHECK(pair.server.courier->heard() == after);
  }
}

TEST_CASE("pieces of a long message are signs of life") {
  Couriers pair({.pipe_capacity = SIZE_MAX});
  const uint32_t before = pair.server.courier->heard();
  pair.to_server->inject(frame(FrameType::data, 0, 0, "the first half"));
  pair.settle();
  CHECK(pair.server.courier->heard() != before);
  CHECK(pair.server.messages.empty());
}

TEST_CASE(
    "what is posted goes out at once where the stream takes it, else when it does, in order") {
  Couriers pair({.pipe_capacity = 1000});
  pair.to_server->hold();
  pair.client.post("one of many");
  CHECK(pair.to_server->size() == kFrameHeaderSize + 11);
  CHECK(pair.client.courier->queued() == 0);
  for (int i = 0; i < 99; ++i) pair.client.post("one of many");
  CHECK(pair.to_server->size() == 1000);
  CHECK(pair.client.courier->queued() == 100 * (kFrameHeaderSize + 11) - 1000);
  pair.to_server->release();
  pair.settle();
  CHECK(pair.server.messages == Messages(100, "one of many"));
}

TEST_CASE("what is posted together over TLS goes out in one write") {
  Couriers pair({.pipe_capacity = SIZE_MAX, .seal_of = tls_seal});
  pair.to_server->hold();
  for (int i = 0; i < 100; ++i) pair.client.post("one of many");
  CHECK(pair.to_server->size() == 0);  // nothing is written inside post()
  CHECK(pair.client.courier->queued() == 100 * (kFrameHeaderSize + 11));
  pair.settle();
  CHECK(pair.to_server->size() < 100 * (kFrameHeaderSize + 11) + 100);  // of one record
  CHECK(pair.client.courier->queued() == 0);
  pair.to_server->release();
  pair.settle();
  CHECK(pair.server.messages.size() == 100);
}

TEST_CASE("what is posted during a write goes out behind it, together") {
  Couriers pair({.pipe_capacity = 1000});
  pair.to_server->hold();
  pair.client.post(std::string(5000, 'a'));
  pair.settle();
  CHECK(pair.to_server->size() == 1000);
  for (int i = 0; i < 10; ++i) pair.client.post("b");
  pair.to_server->release();
  pair.settle();
  REQUIRE(pair.server.messages.size() == 11);
  CHECK(pair.server.messages.front() == std::string(5000, 'a'));
  CHECK(pair.server.messages.back() == "b");
}

TEST_CASE("no more waits than the limit, but for one message of any length") {
  Couriers pair({.limits = {.max_queued = 10'000}, .pipe_capacity = 100});
  pair.to_server->hold();
  CHECK(pair.client.post(std::string(50'000, 'x')));
  CHECK_FALSE(pair.client.post("y"));
  pair.settle();
  CHECK_FALSE(pair.client.post("y"));
  pair.to_server->release();
  pair.settle();
  CHECK(pair.server.messages == Messages{std::string(50'000, 'x')});
  pair.to_server->hold();
  int taken = 0;
  while (pair.client.post(std::string(84, 'z'))) ++taken;
  CHECK(taken > 90);
  CHECK(taken <= 101);
  CHECK(pair.client.courier->queued() <= 10'100);
}

TEST_CASE("what is posted before run() is sent by it") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.seal_of = seal_of, .run = false});
    CHECK(pair.client.post("first"));
    CHECK(pair.client.post("second"));
    pair.settle();
    CHECK(pair.client.courier->queued() != 0);
    pair.run();
    CHECK(pair.server.messages == Messages{"first", "second"});
  }
}

TEST_CASE("messages that came right behind the hello are not lost") {
  Couriers pair({.run = false});
  pair.client.post("early");
  pair.client.courier->start(pair.client, pair.client.strands);
  pair.settle();
  pair.server.courier->start(pair.server, pair.server.strands);
  pair.settle();
  CHECK(pair.server.messages == Messages{"early"});
}

TEST_CASE("a peer that closes ends the courier, once, and posts go nowhere") {
  Couriers pair;
  pair.to_server->close();
  pair.settle();
  CHECK(pair.server.ends == 1);
  CHECK(pair.server.code == Code::unavailable);
  CHECK(pair.server.post("to nobody"));
  CHECK(pair.server.courier->queued() == 0);
  CHECK(pair.server.strands.size() == 0);
}

TEST_CASE("over TLS, an end without a goodbye is an error too") {
  Couriers pair({.seal_of = tls_seal});
  pair.to_server->close();
  pair.settle();
  CHECK(pair.server.ends == 1);
  CHECK(has(pair.server.end, "without a goodbye"));
}

TEST_CASE("a connection that is reset ends both couriers, also while they write") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.pipe_capacity = 100, .seal_of = seal_of});
    pair.to_server->hold();
    pair.client.post(std::string(10'000, 'x'));
    pair.settle();
    pair.to_server->reset();
    pair.to_client->reset();
    pair.settle();
    for (End* end : {&pair.client, &pair.server}) {
      CHECK(end->ends == 1);
      CHECK(end->code == Code::unavailable);
      CHECK(end->strands.size() == 0);
    }
  }
}

TEST_CASE("half a message before the end is not brought") {
  Couriers pair;
  pair.to_server->inject(frame(FrameType::data, 0, 0, "half"));
  const std::string cut = frame(FrameType::message, 0, 0, "the rest").substr(0, 20);
  pair.to_server->inject(cut);
  pair.to_server->close();
  pair.settle();
  CHECK(pair.server.messages.empty());
  CHECK(pair.server.ends == 1);
}

TEST_CASE("frames that are no messages end the courier") {
  for (uint8_t type = 0; type <= kLastFrameType + 1; ++type) {
    const auto kind = static_cast<FrameType>(type);
    if (kind == FrameType::message || kind == FrameType::data) continue;
    Couriers pair;
    pair.to_server->inject(frame(kind, 0, 0, "payload"));
    pair.settle();
    INFO("type ", int{type});
    CHECK(pair.server.code == Code::corrupt);
    CHECK(pair.server.messages.empty());
  }
}

TEST_CASE("damaged bytes end the courier before anything of them is brought") {
  for (size_t place = 0; place < kFrameHeaderSize + 12; ++place) {
    Couriers pair;
    std::string bytes = frame(FrameType::message, 0, 0, "some message");
    bytes[place] ^= 0x20;
    pair.to_server->inject(bytes);
    pair.settle();
    pair.to_server->close();  // a damaged length may wait for more
    pair.settle();
    INFO("byte ", place);
    CHECK(pair.server.messages.empty());
    CHECK(pair.server.ends == 1);
  }
}

TEST_CASE("a taker that errs ends its courier with that error") {
  Couriers pair;
  pair.client.post("fine");
  pair.client.post("to be refused");
  pair.client.post("never seen");
  pair.settle();
  CHECK(pair.server.messages == Messages{"fine", "to be refused"});
  CHECK(pair.server.code == Code::invalid);
  CHECK(pair.server.ends == 1);
}

TEST_CASE("a courier that is cut off ends, reading and writing") {
  for (const SealOf seal_of : {plain_seal, tls_seal}) {
    Couriers pair({.pipe_capacity = 100, .seal_of = seal_of});
    pair.to_server->hold();
    pair.client.post(std::string(10'000, 'x'));
    pair.settle();
    pair.client.courier->cut(Error(Code::deadline, "it was silent"));
    CHECK(pair.client.ends == 0);
    pair.settle();
    CHECK(pair.client.ends == 1);
    CHECK(pair.client.code == Code::deadline);
    CHECK(pair.client.strands.size() == 0);
    pair.client.courier.reset();
    pair.to_server->release();
    pair.settle();
    CHECK(pair.server.ends == 1);
  }
}

Task<void> note_greeting(Clock& clock, std::shared_ptr<MemoryPipe> in,
                         std::shared_ptr<MemoryPipe> out, std::string& how) {
  std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
  std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
  ConnectionOptions options{.self = {"c", Role::agent, "node7"}, .address = "mem:1"};
  auto greeted = co_await Courier::greet(clock, std::move(stream), std::move(seal), Side::accepting,
                                         std::move(options));
  how = greeted ? "greeted" : greeted.error().text();
}

TEST_CASE("whoever says no hello is not spoken with") {
  for (const size_t said : {0UL, 5UL, 100UL}) {
    Executor executor;
    ManualClock clock;
    Scope root{Scope::Root{}};
    const auto in = std::make_shared<MemoryPipe>(SIZE_MAX);
    const auto out = std::make_shared<MemoryPipe>(SIZE_MAX);
    std::string how;
    root.spawn(note_greeting(clock, in, out, how));
    in->inject(std::string(said, 'G'));
    clock.advance(20s);
    CHECK(how != "");
    CHECK(how != "greeted");
    CHECK(out->size() == 0);
    CHECK(root.size() == 0);
  }
}

// Sanitizers bring allocators of their own, which do not count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Crowd {
  static Task<void> greet(Crowd& crowd, Side side, std::shared_ptr<MemoryPipe> in,
                          std::shared_ptr<MemoryPipe> out) {
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
    std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
    ConnectionOptions options{.self = {"c", Role::agent, "node7"}, .address = "10.0.0.7:7000"};
    auto greeted = co_await Courier::greet(crowd.clock, std::move(stream), std::move(seal), side,
                                           std::move(options));
    REQUIRE(greeted.has_value());
    crowd.couriers.push_back(std::move(greeted->courier));
  }
  struct Counter final : MessageTaker {
    Result<void> take(Bytes) override {
      ++count;
      return {};
    }
    void ended(const Error&) override {}
    size_t count = 0;
  };

  Executor executor;
  ManualClock clock;
  Counter counter;
  std::vector<std::unique_ptr<Courier>> couriers;
  Scope root{Scope::Root{}};
};

TEST_CASE("an idle courier holds less than 1.5 KiB, also after a busy moment") {
  constexpr size_t kPairs = 500;
  Crowd crowd;
  crowd.couriers.reserve(2 * kPairs);
  std::vector<std::shared_ptr<MemoryPipe>> pipes;
  pipes.reserve(2 * kPairs);
  for (size_t i = 0; i < 2 * kPairs; ++i) pipes.push_back(std::make_shared<MemoryPipe>(64 * 1024));
  const size_t before = heap_bytes();
  for (size_t i = 0; i < 2 * kPairs; i += 2) {
    crowd.root.spawn(Crowd::greet(crowd, Side::connecting, pipes[i], pipes[i + 1]));
    crowd.root.spawn(Crowd::greet(crowd, Side::accepting, pipes[i + 1], pipes[i]));
  }
  crowd.clock.advance(0ms);
  REQUIRE(crowd.couriers.size() == 2 * kPairs);
  for (const auto& courier : crowd.couriers) courier->start(crowd.counter, crowd.root);
  const auto each = [&] {
    for (const auto& pipe : pipes) pipe->trim();
    return (heap_bytes() - before) / (2 * kPairs);
  };
  // A few signs of life: what is read from small ones is small again.
  const auto live = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (const auto& courier : crowd.couriers) courier->post({});
      crowd.clock.advance(1s);
    }
  };
  live(20);
  const size_t fresh = each();
  for (const auto& courier : crowd.couriers) courier->post(as_bytes(std::string(20'000, 'x')));
  crowd.clock.advance(0ms);
  const size_t busy = each();
  live(40);
  const size_t quiet = each();
  MESSAGE("bytes of a courier with its strand: ", fresh, " fresh, ", busy, " after a busy moment, ",
          quiet, " when it is quiet again; of that the object ", sizeof(Courier));
  CHECK(crowd.counter.count == 2 * kPairs * 61);
  CHECK(fresh <= 1536);
  CHECK(quiet <= 1536);
  crowd.root.cancel();
  crowd.clock.advance(0ms);
}

#endif

}  // namespace
}  // namespace tutti::wire
