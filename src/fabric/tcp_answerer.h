// Our side of the link that one rank made to us, and what we have to do with what it asks: messages
// of its that wait to be received, or that somebody waits for, and large ones that wait for it to
// take them. All of that outlives the link, which may break and be made again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "fabric/tcp_context.h"
#include "fabric/tcp_errand.h"

namespace tutti::tcp {

class Answerer final : private FrameTaker {
 public:
  Answerer(Context& context, EpochState& epoch, uint32_t rank);
  ~Answerer();

  // Whether a connection that says this may be one of its link.
  Result<void> admit(const Introduction& who) const;
  // One has proved itself. When all of a link are there, it takes the place of the link before.
  void join(const Welcome& welcome, std::unique_ptr<Stream> stream);

  void start(SmallReceive& receive) { expect(receive); }
  // Of a large receive: whether there is something it does not fit; then it has failed.
  void start(Pull& receive) { expect(receive); }
  void start(LargeSend& send);
  void forget(Receive& receive);
  void withdraw(LargeSend& send);
  // The receiver seems to want a small message; and it does.
  void doubted(uint64_t serial);
  void refused(uint64_t serial, const Error& why);
  // Large messages that nobody takes are told.
  void tell_waiting();

  bool up() const { return up_; }
  // Whether all answers were written.
  bool quiet() const { return bundle_ == nullptr || bundle_->idle(); }
  // Everything ends with this error.
  void end(const Error& why);

 private:
  // Of those with the same tag the first by number comes first.
  using Place = std::pair<Tag, uint64_t>;
  struct Take {
    Frame frame;
    LargeSend* send = nullptr;  // or it waits
  };

  Task<void> run();
  void reset();
  void expect(Receive& receive);
  static Error misfit(Tag tag, uint32_t sender, uint64_t sent, uint32_t receiver, uint64_t wanted);
  void refuse(Refused what, uint64_t id, const Error& why);
  void answer(FrameType type, uint64_t id, uint64_t offset = 0);

  Result<MutableBytes> place(const Frame& frame) override;
  Result<void> take(const Frame& frame, Bytes payload, bool landed) override;
  void fill(Bundle&) override {}

  void take_message(const Frame& frame, Bytes payload);
  void take_again(const Frame& frame);
  void store(const Frame& frame, Bytes payload);
  void deliver(Receive& receive, uint64_t id, Bytes message);
  Receive* first_expected(Tag tag) const;
  Result<void> take_take(const Frame& frame);
  Result<void> take_get(const Frame& frame, Bytes apart);
  void take_stop(uint64_t id);
  void take_put(const Frame& frame, bool landed);
  void take_received(const Frame& frame);
  void take_waiting(const Frame& frame);
  void take_still(const Frame& frame);
  LargeSend* find_send(const Frame& take);
  void match(Take& take, LargeSend& send);
  void offer(LargeSend& send);
  void remove(LargeSend& send);
  Result<void> check_put(const Frame& frame) const;

  Context& context_;
  EpochState& epoch_;
  uint32_t rank_;

  // Small messages.
  std::map<Place, Receive*> expected_;  // large ones too
  uint64_t next_receive_ = 1;
  std::map<Place, std::string> stored_;  // by id
  uint64_t stored_bytes_ = 0;
  uint64_t last_id_ = 0;            // that came
  std::map<uint64_t, Error> kept_;  // refusals, for who asks again
  // Large messages that seem to come for small receives, and the order of those; and those that
  // did.
  std::map<uint64_t, uint64_t> doubts_;
  std::map<uint64_t, Error> kept_sends_;
  std::optional<Error> flooded_;

  // Large ones, of ours.
  std::map<Place, LargeSend*> sends_;  // by serial
  std::map<uint64_t, LargeSend*> by_serial_;
  uint64_t next_serial_ = 1;
  std::map<uint64_t, Take> takes_;  // by id
  std::set<Place> untaken_;         // takes that wait for a send
  std::map<uint64_t, std::unique_ptr<Flow>> gets_;
  size_t gets_swept_at_ = 0;

  // The link.
  std::optional<uint64_t> session_;
  uint64_t incarnation_ = 0;  // the latest that has proved itself
  uint8_t joined_ = 0;        // connections of it that have
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Secrets> secrets_;
  std::unique_ptr<Bundle> bundle_;
  bool up_ = false;
  Scope* serving_ = nullptr;
  bool complete_ = false;  // a link waits to be served
  Alarm work_;
};

}  // namespace tutti::tcp
