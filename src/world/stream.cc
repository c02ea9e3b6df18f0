#include "world/stream.h"

#include "world/scope.h"

namespace tutti {
namespace {

// Of a read: little at first, more while reads fill it.
constexpr size_t kLeastRoom = 64;
constexpr size_t kMostRoom = 64 << 10;

// With a frame of its own: who reads waits for something to read nearly all of its life.
Task<void> wait_for(ByteTaker& taker, Clock& clock) {
  while (true) {
    const Duration pause = taker.pause();
    if (pause <= Duration::zero()) co_return;
    auto slept = co_await clock.sleep(pause);
    if (!slept) co_return;
  }
}

Task<void> read_for(Stream& stream, ByteTaker& taker, Clock* clock) {
  std::vector<std::byte> room(kLeastRoom);
  std::vector<Handle> handles;
  while (true) {
    if (taker.pause() > Duration::zero()) co_await wait_for(taker, *clock);
    const Result<size_t> count = co_await stream.read(room, &handles);
    if (!count && count.error().code() == Code::cancelled) co_return;
    if (!count || *count == 0) {
      taker.on_end(count ? Result<void>() : fail(count.error()));
      co_return;
    }
    taker.on_bytes(Bytes(room).first(*count), std::exchange(handles, {}));
    if (*count == room.size() && room.size() < kMostRoom) room.resize(4 * room.size());
  }
}

}  // namespace

void Stream::serve(ByteTaker& taker, Scope& scope, Clock* clock) {
  scope.spawn(read_for(*this, taker, clock));
}

}  // namespace tutti
