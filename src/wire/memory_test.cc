// What connections hold in memory, by the allocator's own count.
#include <malloc.h>

#include "wire/raw_peer.h"

namespace tutti::wire {
namespace {

// Sanitizers bring allocators of their own, which do not count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Idle {
  static Task<void> greet(Idle& idle, Side side, std::shared_ptr<MemoryPipe> in,
                          std::shared_ptr<MemoryPipe> out) {
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(in, out);
    std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
    ConnectionOptions options{.self = {"c", Role::agent, "node7"}, .address = "10.0.0.7:7000"};
    auto greeted = co_await Connection::greet(idle.clock, std::move(stream), std::move(seal), side,
                                              &idle.service.methods, std::move(options));
    REQUIRE(greeted.has_value());
    idle.connections.push_back(std::move(*greeted));
  }
  static Task<void> call(Idle& idle, Connection& connection, std::string text) {
    const Blob request = blob_of(text);
    auto reply = co_await connection.call(kEcho, request);
    idle.answered += reply ? 1 : 0;
  }

  Executor executor;
  ManualClock clock;
  TestService service{clock};
  std::vector<std::unique_ptr<Connection>> connections;
  size_t answered = 0;
  Scope root{Scope::Root{}};
};

TEST_CASE("an idle connection holds no more than 4 KiB, also after a busy moment") {
  constexpr size_t kPairs = 500;
  constexpr size_t kBusyCalls = 40;
  Idle idle;
  idle.connections.reserve(2 * kPairs);
  std::vector<std::shared_ptr<MemoryPipe>> pipes;
  const size_t before = heap_bytes();
  for (size_t i = 0; i < kPairs; ++i) {
    const auto there = std::make_shared<MemoryPipe>(64 * 1024);
    const auto back = std::make_shared<MemoryPipe>(64 * 1024);
    idle.root.spawn(Idle::greet(idle, Side::connecting, back, there));
    idle.root.spawn(Idle::greet(idle, Side::accepting, there, back));
    pipes.push_back(there);
    pipes.push_back(back);
  }
  idle.clock.advance(0ms);
  for (const auto& connection : idle.connections) idle.root.spawn(connection->run());
  idle.clock.advance(1s);
  const auto each = [&] {
    for (const auto& pipe : pipes) pipe->trim();
    return (heap_bytes() - before) / (2 * kPairs);
  };
  const size_t fresh = each();
  for (const auto& connection : idle.connections)
    for (size_t call = 0; call < kBusyCalls; ++call)
      idle.root.spawn(Idle::call(idle, *connection, std::string(call * 1000, 'x')));
  idle.clock.advance(0ms);
  CHECK(idle.answered == 2 * kPairs * kBusyCalls);
  const size_t busy = each();
  idle.clock.advance(60s);
  const size_t quiet = each();
  INFO("bytes of a connection: ", fresh, " fresh, ", busy, " after a busy moment, ", quiet,
       " when it is quiet again; of that the object ", sizeof(Connection));
  CHECK(fresh <= 4096);
  CHECK(quiet <= 4096);
  idle.answered = 0;
  for (const auto& connection : idle.connections)
    idle.root.spawn(Idle::call(idle, *connection, "again"));
  idle.clock.advance(0ms);
  CHECK(idle.answered == 2 * kPairs);
  idle.root.cancel();
  idle.clock.advance(0ms);
}

TEST_CASE("messages that nobody read are freed when their call is cancelled") {
  constexpr uint16_t kStreams = 100;
  RawPeer peer(Side::accepting);
  const size_t before = heap_bytes();
  for (uint16_t slot = 0; slot < kStreams; ++slot) {
    std::string bytes = open_call(kDeaf.id, stream_of(slot));
    for (int i = 0; i < 60; ++i)
      bytes += frame(FrameType::message, FrameFlags::opener | FrameFlags::message, stream_of(slot),
                     std::string(1000, 'x'));
    peer.say(bytes);
  }
  const size_t unread = heap_bytes() - before;
  CHECK(unread > kStreams * 60'000);
  for (uint16_t slot = 0; slot < kStreams; ++slot)
    peer.say(frame(FrameType::cancel, FrameFlags::opener, stream_of(slot), ""));
  CHECK(peer.connection->calls_in_flight() == 0);
  CHECK(heap_bytes() - before < 300'000);
}

TEST_CASE("announcements take no memory, and what comes without the budget no more than windows") {
  RawPeer peer(Side::accepting);
  const size_t before = heap_bytes();
  for (uint16_t slot = 0; slot < 1000; ++slot) {
    peer.say(open_call(kDeaf.id, stream_of(slot)));
    peer.say(frame(FrameType::message, FrameFlags::opener | FrameFlags::large, stream_of(slot),
                   u64(64_MiB)));
  }
  CHECK(peer.connection->budget_in_use() == 64_MiB);
  CHECK(heap_bytes() - before < 4_MiB);
  for (uint16_t slot = 1; slot <= 100; ++slot)
    peer.say(frame(FrameType::data, FrameFlags::opener, stream_of(slot), std::string(10'000, 'd')));
  CHECK(heap_bytes() - before < 4_MiB + 100 * 64_KiB);
}

#endif

}  // namespace
}  // namespace tutti::wire
