#include "world/stream.h"

#include "world/scope.h"

namespace tutti {
namespace {

// Of a read: little at first, more while reads fill it, and less again after so many small ones.
constexpr size_t kLeastRoom = 64;
constexpr size_t kMostRoom = 64 << 10;
constexpr uint32_t kSmallReads = 16;

class Room {
 public:
  MutableBytes bytes() { return {bytes_.get(), size_}; }
  void used(size_t count) {
    const bool small = size_ > kLeastRoom && count <= size_ / 4;
    small_reads_ = small ? small_reads_ + 1 : 0;
    if (small_reads_ == kSmallReads) resize(kLeastRoom);
    if (count == size_ && size_ < kMostRoom) resize(4 * size_);
  }

 private:
  void resize(size_t size) {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
    size_ = static_cast<uint32_t>(size);
    small_reads_ = 0;
  }
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kLeastRoom);
  uint32_t size_ = kLeastRoom;
  uint32_t small_reads_ = 0;
};

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
  Room room;
  std::vector<Handle> handles;
  while (true) {
    if (taker.pause() > Duration::zero()) co_await wait_for(taker, *clock);
    const MutableBytes into = room.bytes();
    const Result<size_t> count = co_await stream.read(into, &handles);
    if (!count && count.error().code() == Code::cancelled) co_return;
    if (!count || *count == 0) {
      taker.on_end(count ? Result<void>() : fail(count.error()));
      co_return;
    }
    taker.on_bytes(into.first(*count), std::exchange(handles, {}));
    room.used(*count);
  }
}

}  // namespace

void Stream::serve(ByteTaker& taker, Scope& scope, Clock* clock) {
  scope.spawn(read_for(*this, taker, clock));
}

}  // namespace tutti
