// A bounded queue between strands of one executor.
//
// send() waits while the channel is full, recv() while it is empty; both are served in order of
// arrival. After close(), senders get Code::unavailable at once, receivers first what is left.
// The channel must outlive those who wait on it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "world/executor.h"

namespace tutti {

template <class T>
class Channel {
 public:
  explicit Channel(size_t capacity) : capacity_(capacity) {
    TUTTI_ASSERT(capacity > 0, "a channel holds at least one value");
  }
  ~Channel() { TUTTI_ASSERT(senders_.empty() && receivers_.empty(), "a channel outlives waiters"); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  class Send;
  class Recv;
  Send send(T value) { return Send(*this, std::move(value)); }  // co_await gives Result<void>
  Recv recv() { return Recv(*this); }                           // co_await gives Result<T>

  // False when full or closed; the value is then untouched.
  bool try_send(T& value);
  std::optional<T> try_recv();

  void close();
  bool closed() const { return closed_; }
  size_t size() const { return values_ == nullptr ? 0 : values_->size(); }

 private:
  static Error closed_error() { return {Code::unavailable, "the channel is closed"}; }
  void push(T value) {
    if (!receivers_.empty()) return receivers_.pop_front().deliver(std::move(value));
    if (values_ == nullptr) values_ = std::make_unique<std::deque<T>>();
    values_->push_back(std::move(value));
  }
  T pop() {
    T value = std::move(values_->front());
    values_->pop_front();
    if (!senders_.empty()) values_->push_back(senders_.pop_front().accept());
    return value;
  }

  size_t capacity_;
  bool closed_ = false;
  std::unique_ptr<std::deque<T>> values_;  // when first needed: an empty one takes 600 bytes
  List<Send> senders_;
  List<Recv> receivers_;
};

template <class T>
class Channel<T>::Send final : public Waiter {
 public:
  Send(Channel& channel, T value) : channel_(channel), value_(std::move(value)) {}
  bool await_ready() {
    if (cancelled_already()) {
      error_ = cancelled_error();
    } else if (channel_.closed_) {
      error_ = closed_error();
    } else if (channel_.size() < channel_.capacity_) {
      channel_.push(std::move(*value_));
    } else {
      return false;
    }
    return true;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    channel_.senders_.push_back(*this);
  }
  Result<void> await_resume() {
    if (error_) return fail(std::move(*error_));
    return {};
  }

 private:
  friend class Channel;
  T accept() {
    T value = std::move(*value_);
    wake();
    return value;
  }
  void refuse(Error error) {
    error_ = std::move(error);
    wake();
  }
  void on_cancel() override { refuse(cancelled_error()); }

  Channel& channel_;
  std::optional<T> value_;
  std::optional<Error> error_;
};

template <class T>
class Channel<T>::Recv final : public Waiter {
 public:
  explicit Recv(Channel& channel) : channel_(channel) {}
  bool await_ready() {
    if (cancelled_already()) {
      error_ = cancelled_error();
    } else if (channel_.size() > 0) {
      value_ = channel_.pop();
    } else if (channel_.closed_) {
      error_ = closed_error();
    } else {
      return false;
    }
    return true;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    channel_.receivers_.push_back(*this);
  }
  Result<T> await_resume() {
    if (value_) return std::move(*value_);
    return fail(std::move(*error_));
  }

 private:
  friend class Channel;
  void deliver(T value) {
    value_ = std::move(value);
    wake();
  }
  void refuse(Error error) {
    error_ = std::move(error);
    wake();
  }
  void on_cancel() override { refuse(cancelled_error()); }

  Channel& channel_;
  std::optional<T> value_;
  std::optional<Error> error_;
};

template <class T>
bool Channel<T>::try_send(T& value) {
  if (closed_ || size() >= capacity_) return false;
  push(std::move(value));
  return true;
}

template <class T>
std::optional<T> Channel<T>::try_recv() {
  if (size() == 0) return std::nullopt;
  return pop();
}

template <class T>
void Channel<T>::close() {
  closed_ = true;
  while (!senders_.empty()) senders_.pop_front().refuse(closed_error());
  while (!receivers_.empty()) receivers_.pop_front().refuse(closed_error());
}

}  // namespace tutti
