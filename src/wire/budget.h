// Bytes of memory that the messages of a connection share, handed out in the order of asking.
//
// What is handed out is a Lease. It travels with the memory it stands for and gives the bytes back
// when it dies, wherever that is: a message may lie unread after its call and even its connection
// have ended.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/list.h"

namespace tutti::wire {

class Budget;

class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Lease();

  uint64_t bytes() const { return bytes_; }

 private:
  friend class Budget;
  Lease(std::shared_ptr<Budget> budget, uint64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}

  std::shared_ptr<Budget> budget_;
  uint64_t bytes_ = 0;
};

class Budget : public std::enable_shared_from_this<Budget> {
 public:
  // Whoever wants bytes; out of the queue when it dies.
  class Wait : public ListNode {
   public:
    uint64_t bytes = 0;
    virtual void granted(Lease lease) = 0;

   protected:
    ~Wait() = default;
  };

  explicit Budget(uint64_t limit) : limit_(limit) {}

  // Grants, perhaps at once, when the bytes fit and nobody asked before. More than there is at all
  // is granted when nothing else is in use.
  void ask(Wait& wait);
  void withdraw(Wait& wait);
  // For memory that is there already: at once, even beyond the limit.
  Lease take(uint64_t bytes);

  uint64_t in_use() const { return in_use_; }
  bool over_limit() const { return in_use_ > limit_; }

 private:
  friend class Lease;
  void grant();

  uint64_t limit_;
  uint64_t in_use_ = 0;
  List<Wait> waiting_;
};

inline Lease::~Lease() {
  if (bytes_ == 0) return;
  budget_->in_use_ -= bytes_;
  budget_->grant();
}

}  // namespace tutti::wire
