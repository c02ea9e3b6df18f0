// What a connection has to send. Small frames are written one after the other into one buffer;
// large messages stay where they are and give one data frame at a time, taking turns. The writer
// takes everything that is there as one batch for one vectored write.
#pragma once

#include <array>
#include <span>

#include "base/list.h"
#include "wire/blob.h"
#include "wire/frame.h"
#include "world/executor.h"

namespace tutti::wire {

// A large message being sent. Owned by its call; leaves the outbox when it dies.
class BulkSend : public ListNode {
 public:
  // Called from Outbox::take(), after the last piece was put into a batch.
  virtual void bulk_done() = 0;

  bool active() const { return rest_ != 0; }
  void start(Blob blob, uint32_t stream, uint8_t flags);
  void stop();

  uint64_t credit = 0;  // bytes we may send on this call

 protected:
  ~BulkSend() = default;

 private:
  friend class Outbox;
  Blob blob_;
  size_t rest_ = 0;  // bytes not yet in a batch
  uint32_t stream_ = 0;
  uint8_t flags_ = 0;
};

class Outbox {
 public:
  // Adds a small frame; `fill` writes its payload of `size` bytes.
  template <class Fill>
  void add(FrameType type, uint8_t flags, uint32_t stream, size_t size, Fill&& fill) {
    std::byte* frame = filling_.extend(kFrameHeaderSize + size);
    fill(frame + kFrameHeaderSize);
    store_frame_header(frame, type, flags, stream, {frame + kFrameHeaderSize, size});
    wake_writer();
  }
  // The message has credit: its pieces are part of the batches to come.
  void add_bulk(BulkSend& bulk);

  // Bytes of small frames that were not written yet.
  size_t queued() const { return filling_.size() + writing_.size(); }
  bool empty() const { return filling_.empty() && bulk_.empty(); }

  // co_await: until there is something to send. For the one writer; Result<void>, cancelled.
  class Ready;
  Ready ready();
  // Whoever waits in ready() goes on, even with nothing to send.
  void wake_writer();

  // The next batch, valid until done(); empty when there is nothing.
  std::span<const Bytes> take();
  void done();
  // Gives memory back that nothing is in.
  void release_idle();

 private:
  // Bounds a batch: small frames that come while it is written wait for it.
  static constexpr size_t kMaxBatchPieces = 8;
  static constexpr size_t kMaxBatchBytes = 1024 * 1024;

  // A busy moment's memory is given back.
  static constexpr size_t kKeptCapacity = 256 * 1024;

  Bytes take_piece();

  Buffer filling_;
  Buffer writing_;
  List<BulkSend> bulk_;
  // Made with the first large message; most connections never send one.
  struct Pieces {
    std::array<std::array<std::byte, kFrameHeaderSize>, kMaxBatchPieces> headers;
    std::array<Blob, kMaxBatchPieces> blobs;
    std::array<Bytes, 2 * kMaxBatchPieces + 1> parts;
    size_t count = 0;
  };
  std::unique_ptr<Pieces> pieces_;
  Bytes small_part_;
  Ready* waiting_ = nullptr;
};

class Outbox::Ready final : public Waiter {
 public:
  explicit Ready(Outbox& outbox) : outbox_(outbox) {}
  ~Ready() {
    if (outbox_.waiting_ == this) outbox_.waiting_ = nullptr;
  }
  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_ || !outbox_.empty();
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    outbox_.waiting_ = this;
  }
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }

 private:
  void on_cancel() override {
    cancelled_ = true;
    outbox_.waiting_ = nullptr;
    wake();
  }
  Outbox& outbox_;
  bool cancelled_ = false;
};

inline Outbox::Ready Outbox::ready() { return Ready(*this); }

inline void Outbox::wake_writer() {
  if (waiting_ != nullptr) std::exchange(waiting_, nullptr)->wake();
}

}  // namespace tutti::wire
