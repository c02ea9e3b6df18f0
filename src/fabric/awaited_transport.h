// A transport that knows for whom its calls wait: for the words of who waits too long. Calls are
// made on the engine; any thread may ask.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "fabric/transport.h"

namespace tutti {

class AwaitedTransport final : public Transport {
 public:
  // Ranks that calls may be with.
  AwaitedTransport(Transport& transport, std::vector<uint32_t> ranks)
      : transport_(transport), ranks_(std::move(ranks)), waiting_(ranks_.size()) {}

  // Ranks with which something is under way, ascending.
  std::vector<uint32_t> awaited() const {
    std::vector<uint32_t> ranks;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (waiting_[i].load(std::memory_order_relaxed) != 0) ranks.push_back(ranks_[i]);
    std::ranges::sort(ranks);
    return ranks;
  }

  std::string_view name() const override { return transport_.name(); }
  void begin_epoch(uint64_t epoch) override { transport_.begin_epoch(epoch); }
  void end_epoch(Error why) override { transport_.end_epoch(std::move(why)); }
  Task<void> refuse(std::vector<uint32_t> ranks, Refusal refusal) override {
    return transport_.refuse(std::move(ranks), std::move(refusal));
  }
  std::vector<uint32_t> left() const override { return transport_.left(); }
  std::optional<uint32_t> left_in(uint64_t scope) const override {
    return transport_.left_in(scope);
  }
  std::vector<uint32_t> linked() const override { return transport_.linked(); }

  Task<Result<void>> send(uint32_t rank, Tag tag, Bytes bytes, Priority priority) override {
    return with(rank, transport_.send(rank, tag, bytes, priority));
  }
  Task<Result<void>> receive(uint32_t rank, Tag tag, MutableBytes into) override {
    return with(rank, transport_.receive(rank, tag, into));
  }
  Task<Result<void>> put(uint32_t rank, uint64_t offset, Bytes from, Priority priority) override {
    return with(rank, transport_.put(rank, offset, from, priority));
  }
  Task<Result<void>> get(uint32_t rank, Strides from, MutableBytes into, Priority priority,
                         Tag tag) override {
    return with(rank, transport_.get(rank, from, into, priority, tag));
  }

 private:
  class Waiting {
   public:
    explicit Waiting(std::atomic<uint32_t>& count) : count_(count) { ++count_; }
    ~Waiting() { --count_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::atomic<uint32_t>& count_;
  };

  Task<Result<void>> with(uint32_t rank, Task<Result<void>> call) {
    const auto found = std::ranges::find(ranks_, rank);
    const Waiting waiting(waiting_[static_cast<size_t>(found - ranks_.begin())]);
    auto done = co_await std::move(call);
    co_return done;
  }

  Transport& transport_;
  std::vector<uint32_t> ranks_;
  std::vector<std::atomic<uint32_t>> waiting_;
};

}  // namespace tutti
