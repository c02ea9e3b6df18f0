// Our side of a link that we made: what we ask of one rank, until it has answered.
//
// The link is made when first needed, and made again whenever it breaks; then what was not answered
// is asked again. Small messages have numbers in the order in which they were first sent, and keep
// them, so that the other side knows what it has seen.
#pragma once

#include <map>
#include <optional>

#include "fabric/tcp_context.h"
#include "fabric/tcp_errand.h"

namespace tutti::tcp {

class Caller final : private FrameTaker {
 public:
  Caller(Context& context, EpochState& epoch, uint32_t rank);
  ~Caller();

  void start(SmallSend& send);
  void start(Pull& pull);
  void start(Put& put);
  void withdraw(SmallSend& send);
  void withdraw(Pull& pull);
  void withdraw(Put& put);
  // A large message of ours waits to be taken: `waiting`, or `still`.
  void tell(FrameType what, const LargeSend& send);

  // Whether the other side knows what it has to.
  bool quiet() const;
  bool up() const { return up_; }
  // Everything ends with this error.
  void end(const Error& why);

 private:
  Task<void> run();
  Task<Result<void>> connect(Bundle& bundle);
  Task<Result<void>> connect_stream(Bundle& bundle, Address address, uint8_t stream);
  Task<Result<void>> attend();
  Task<Result<void>> listen_for_life();
  void resume();
  void wake();
  bool busy() const;
  bool full(Errand& errand);
  void tell_lost(const Error& why);
  void ask(const Pull& pull);

  Result<MutableBytes> place(const Frame& frame) override;
  Result<void> take(const Frame& frame, Bytes payload, bool landed) override;
  void fill(Bundle& bundle) override;
  Result<void> take_data(const Frame& frame, bool landed);
  void take_placed(const Frame& frame);
  void take_refused(const Frame& frame, const Error& why);

  Context& context_;
  EpochState& epoch_;
  uint32_t rank_;
  uint64_t incarnation_ = 0;
  uint64_t next_id_ = 1;
  std::array<List<SmallSend>, 3> queued_;     // by priority, not yet sent
  std::map<uint64_t, SmallSend*> in_flight_;  // by id, not yet answered
  std::map<uint64_t, Pull*> pulls_;           // by id
  std::map<uint64_t, Put*> puts_;             // by id
  std::map<uint64_t, uint64_t> unreleased_;   // takes that are done, and what they took
  std::unique_ptr<Bundle> bundle_;
  bool up_ = false;      // the bundle can be used
  bool wanted_ = false;  // for a word that nobody waits for
  Alarm work_;
};

}  // namespace tutti::tcp
