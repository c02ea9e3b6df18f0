// What a call of the transport waits for: one object per call, in the frame of the call. The link
// that carries it out knows it until it is finished or withdrawn.
#pragma once

#include <map>

#include "base/range_set.h"
#include "fabric/tcp_bundle.h"

namespace tutti::tcp {

class Caller;
class Answerer;

class Errand : public Waiter {
 public:
  bool await_ready() {
    if (!done_ && cancelled_already()) give_up();
    return done_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) { park(coroutine); }
  Result<void> await_resume() { return std::move(result_); }

  bool done() const { return done_; }
  // Whatever became of it: it ends with this.
  void end_with(const Error& why) {
    if (done_) return;
    withdraw();
    finish(fail(why));
  }
  // By who carries it out, who forgets it.
  void finish(Result<void> result) {
    done_ = true;
    result_ = std::move(result);
    unlink();
    if (parked()) wake();
  }

 protected:
  ~Errand() = default;
  // Who carries it out shall forget it, and everything it points at.
  virtual void withdraw() = 0;

 private:
  void give_up() {
    withdraw();
    finish(fail(cancelled_error()));
  }
  void on_cancel() override { give_up(); }

  Result<void> result_;
  bool done_ = false;
};

// Which pieces of something large are there.
class Pieces {
 public:
  explicit Pieces(uint64_t total) : total_(total) {}
  void add(uint64_t offset) { there_.add(static_cast<uint32_t>(offset / kChunkBytes)); }
  void clear() { there_ = {}; }
  bool complete() const { return there_.size() == pieces_of(total_); }
  // Where the first begins that is missing.
  uint64_t missing() const {
    if (there_.empty() || there_.front() != 0) return 0;
    return (uint64_t{there_.ranges().front().last} + 1) * kChunkBytes;
  }

 private:
  uint64_t total_;
  RangeSet there_;
};

// A small message, with a Caller.
class SmallSend final : public Errand {
 public:
  SmallSend(Caller& caller, Tag tag, Bytes bytes, Priority priority)
      : caller(caller), tag(tag), bytes(bytes), priority(priority) {}
  ~SmallSend();

  Caller& caller;
  Tag tag;
  Bytes bytes;
  Priority priority;
  uint64_t id = 0;  // once it was sent for the first time

 private:
  void withdraw() override;
};

// A large message, with an Answerer: it waits to be taken.
class LargeSend final : public Errand {
 public:
  LargeSend(Answerer& answerer, Tag tag, Bytes bytes, Priority priority)
      : answerer(answerer), tag(tag) {
    flow.bytes = bytes;
    flow.frame.priority = priority;
  }
  ~LargeSend();

  Answerer& answerer;
  Tag tag;
  Flow flow;
  uint64_t serial = 0;    // its name; grows
  uint64_t taken_by = 0;  // the id of the take, or 0
  bool stale = false;     // taken over a link that broke: it may be taken again

 private:
  void withdraw() override;
};

// Somebody waits for a message with this tag.
class Receive : public Errand {
 public:
  Receive(Answerer& answerer, Tag tag, MutableBytes into)
      : answerer(answerer), tag(tag), into(into) {}
  bool small() const { return into.size() <= kSmallBytes; }
  // After Answerer found what it is; gone from both sides of the link when it returns.
  virtual void fail_with(const Error& why) = 0;

  Answerer& answerer;
  Tag tag;
  MutableBytes into;
  uint64_t order = 0;  // among those of the Answerer

 protected:
  ~Receive() = default;
};

class SmallReceive final : public Receive {
 public:
  using Receive::Receive;
  ~SmallReceive();
  void fail_with(const Error& why) override { finish(fail(why)); }

 private:
  void withdraw() override;
};

// A large receive, which takes, or a get. With a Caller; a receive with the Answerer as well.
class Pull final : public Receive {
 public:
  // A receive.
  Pull(Caller& caller, Answerer& answerer, Tag tag, MutableBytes into)
      : Receive(answerer, tag, into), caller(caller), takes(true), pieces(into.size()) {}
  // A get.
  Pull(Caller& caller, Answerer& answerer, const Strides& from, MutableBytes into,
       Priority priority)
      : Receive(answerer, {from.offset, 0}, into),
        caller(caller),
        takes(false),
        from(from),
        priority(priority),
        pieces(into.size()) {}
  ~Pull();
  void fail_with(const Error& why) override;

  Caller& caller;
  bool takes;
  Strides from;
  Priority priority = Priority::normal;
  uint64_t id = 0;
  uint64_t serial = 0;  // of the large send whose pieces came
  Pieces pieces;

 private:
  void withdraw() override;
};

class Put final : public Errand {
 public:
  Put(Caller& caller, uint64_t place, Bytes bytes, Priority priority)
      : caller(caller), pieces(bytes.size()) {
    flow.bytes = bytes;
    flow.frame.type = FrameType::put;
    flow.frame.priority = priority;
    flow.frame.scope = place;
    flow.frame.total = bytes.size();
  }
  ~Put();

  Caller& caller;
  Flow flow;
  Pieces pieces;

 private:
  void withdraw() override;
};

}  // namespace tutti::tcp
