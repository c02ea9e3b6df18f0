// Finds a Tuning: all members of a group do the trials of TuningTrials together, as part of a call
// that takes longer for it, once. Whoever waits for that call drives it, so it can hang only where
// the call could. Sums are of zeros in scratch of our own; no result is touched.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fabric/call.h"
#include "fabric/engine_job.h"
#include "fabric/tuning_trials.h"

namespace tutti {

class Group;
class Heap;
class Operation;
class Parking;

// How an operation that is a trial differs from the group's others.
struct TrialChoices {
  uint64_t small_bytes = 0;
  uint64_t stream_bytes = 0;
  std::optional<RailWay> way;
  uint32_t number = 0;  // in tags between hosts, beside those of the group's calls
};

class TuningRun {
 public:
  TuningRun(Group& group, uint32_t call);  // as part of this call
  ~TuningRun();
  TuningRun(const TuningRun&) = delete;
  TuningRun& operator=(const TuningRun&) = delete;

  // Does what can be done now; true when the group has its tuning.
  Result<bool> step();
  std::string missing() const;
  std::shared_ptr<EngineJob> job() const;  // of the trial under way, if it has one

 private:
  // ask: has everybody memory? order: which trial is next. ready: all begin at once. run, close: it
  // is done, by all. settle: everybody hears what follows.
  enum class State : uint8_t { ask, order, ready, run, close, settle, done };

  bool leads() const;
  bool has_room();
  Call next_call();
  Call tell(void* words, uint64_t count, CallKind kind);
  Call trial_call() const;
  TrialChoices choices();
  void finished();
  void read_output();

  Group& group_;
  uint32_t call_;
  Heap& heap_;
  Parking& parking_;
  TuningTrials trials_;
  Instant begun_;
  State state_ = State::ask;
  std::unique_ptr<Operation> operation_;
  uint32_t operations_ = 0;
  std::optional<uint64_t> input_;  // scratch
  std::optional<uint64_t> output_;
  int64_t word_ = 0;  // of ask and order
  TuningWords words_{};
  int calls_left_ = 0;
  Instant trial_begun_{};
  uint64_t sink_ = 0;  // what was read must be of use
};

}  // namespace tutti
