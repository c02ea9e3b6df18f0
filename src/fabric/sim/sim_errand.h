// What a call of the simulated transport waits for: one object per call, in the frame of the call.
// It dies with its frame, and whatever it had on the way is gone with it.
#pragma once

#include <map>
#include <optional>

#include "fabric/sim/sim_hub.h"

namespace tutti::simnet {

class Errand : public Waiter {
 public:
  bool await_ready() {
    if (!done_ && cancelled_already()) end_with(cancelled_error());
    return done_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) { park(coroutine); }
  Result<void> await_resume() { return std::move(result_); }

  bool done() const { return done_; }
  void end_with(const Error& why) {
    if (done_) return;
    withdraw();
    finish(fail(why));
  }

 protected:
  // Known to its transport by its tag while it lives.
  Errand(SimTransport& transport, Tag tag);
  ~Errand();
  void finish(Result<void> result) {
    done_ = true;
    result_ = std::move(result);
    if (parked()) wake();
  }
  SimTransport& transport() const { return transport_; }
  SimHub& hub() const;

 private:
  // Nobody else knows of it when this returns.
  virtual void withdraw() = 0;
  void on_cancel() override { end_with(cancelled_error()); }

  SimTransport& transport_;
  std::multimap<Tag, Errand*>::iterator place_;
  Result<void> result_;
  bool done_ = false;
};

// Something that is on its way to a host. It comes when the path lets it through, the host is up
// and its core is free; what a host that is down should have got is lost.
class Hop : public SimEvent {
 protected:
  Hop() : SimEvent(EventKind::transfer) {}
  ~Hop() = default;
  // To be there then, if nothing is in the way.
  void go(SimHub& hub, uint32_t from_host, uint32_t to_host, int64_t at_ns, double charge_ns);
  // To no host: it only passes time.
  void pass(SimHub& hub, int64_t at_ns);
  void stop();

 private:
  virtual void come() = 0;
  void fire() override;

  SimHub* hub_ = nullptr;
  uint32_t from_ = kDirector;
  uint32_t to_ = kDirector;
  int64_t pause_ns_ = 0;
};

// Bytes that go from one host to another, and the answer that comes back. At most one of its parts
// is on the way at any time.
class Journey : public Errand, protected FlowNet::Flow, private Hop {
 protected:
  Journey(SimTransport& transport, Tag tag, uint32_t peer, Priority priority);
  ~Journey() = default;

  uint32_t own() const { return own_; }
  uint32_t peer() const { return peer_; }
  // A word without bytes to the host of a rank, to be there at this time at the earliest.
  void ask(uint32_t from, uint32_t to, int64_t not_before_ns);
  // These bytes, from the running handler's host.
  void move(uint32_t from, uint32_t to, uint64_t bytes);
  // The peer says so to us: it ends the call.
  void reply(Result<void> result);
  // The same again, a little later, where it is.
  void look_again();
  // Nothing of it is on the way any more.
  void halt();
  // When what the running handler of a host sends leaves it.
  int64_t leaves_ns(uint32_t rank) const;
  bool there_in_epoch(uint64_t epoch, bool& never) const;

  virtual void asked() {}       // the word is there
  virtual void bytes_came() {}  // the last of them is there

 private:
  enum class Step : uint8_t { none, word, leaving, bytes, reply, again };
  void come() override;
  void drained() override;
  void flow();

  uint32_t own_;
  uint32_t peer_;
  Priority priority_;
  Step step_ = Step::none;
  Step repeated_ = Step::none;
  uint32_t from_ = 0;  // ranks
  uint32_t to_ = 0;
  uint64_t bytes_ = 0;
  Result<void> reply_;
};

class Send final : public Journey {
 public:
  Send(SimTransport& transport, uint32_t rank, Tag tag, Bytes bytes, Priority priority);
  ~Send() {
    if (!done()) withdraw();
  }
  void start();

 private:
  friend class Receive;
  bool eager() const;
  // A receive is there for it: it goes, or is copied if it came already.
  void take(Receive& receive);
  void untake();
  void deliver(Receive& receive);
  void wait_in_mailbox();
  void withdraw() override;
  void asked() override;
  void bytes_came() override;

  Key key_;
  Bytes bytes_;
  Receive* taken_by_ = nullptr;
  bool came_ = false;
  std::optional<std::multimap<Key, Send*>::iterator> place_;
};

class Receive final : public Errand {
 public:
  Receive(SimTransport& transport, uint32_t rank, Tag tag, MutableBytes into);
  ~Receive() {
    if (!done()) withdraw();
  }
  void start();

 private:
  friend class Send;
  void wait_in_mailbox();
  void withdraw() override;

  Key key_;
  uint32_t rank_;  // ours
  MutableBytes into_;
  int64_t asks_at_ns_ = 0;  // when its word leaves
  Send* send_ = nullptr;    // that is on its way to us
  std::optional<std::multimap<Key, Receive*>::iterator> place_;
};

class Put final : public Journey {
 public:
  Put(SimTransport& transport, uint32_t rank, uint64_t offset, Bytes from, Priority priority);
  ~Put() {
    if (!done()) withdraw();
  }
  void start() { move(own(), peer(), from_.size()); }

 private:
  void withdraw() override { halt(); }
  void bytes_came() override;

  uint64_t epoch_;
  uint64_t offset_;
  Bytes from_;
};

class Get final : public Journey {
 public:
  Get(SimTransport& transport, uint32_t rank, const Strides& from, MutableBytes into,
      Priority priority, Tag tag);
  ~Get() {
    if (!done()) withdraw();
  }
  void start() { ask(own(), peer(), 0); }

 private:
  void withdraw() override { halt(); }
  void asked() override;
  void bytes_came() override;

  uint64_t epoch_;
  const Strides& from_;
  MutableBytes into_;
};

// Tells a rank that calls are refused.
class Telling final : public Journey {
 public:
  Telling(SimTransport& transport, uint32_t rank, const Refusal& refusal);
  ~Telling() {
    if (!done()) withdraw();
  }
  void start() { ask(own(), peer(), 0); }

 private:
  void withdraw() override { halt(); }
  void asked() override;

  uint64_t epoch_;
  const Refusal& refusal_;
};

}  // namespace tutti::simnet
