// A group of ranks that call collectives together, in the same order.
//
// Members meet in ticks. A member publishes a tick by writing its call into its board; nobody
// publishes a tick before all have published the one before the last, so that what was brought
// along may be read until then. A small call is one tick: data travels with the call, and everybody
// works on everything. A large call is two: after the first, members work on each other's memory
// where it lies; with the second they say that they are done with it. In a group over several hosts
// ticks are of the members of one host, and between the two their engines speak with the other
// hosts (wide_call.h). docs/fabric.md says more.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/call.h"
#include "fabric/fabric.h"
#include "fabric/group_hosts.h"
#include "fabric/resharding.h"
#include "fabric/tuning_run.h"
#include "fabric/wide_call.h"

namespace tutti {

class Group;

// A call under way.
class Operation final : public Pending {
 public:
  Operation(Group& group, Call call, std::optional<TrialChoices> trial = {});
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  Result<bool> advance() override;  // this call, when those before it are done
  std::string missing() const override;
  uint32_t waits_for() const override;
  void abandon() override;
  Task<void> abandon(World& world) override;
  void note_wait(FlightRecorder& flight) const override;
  bool busy() const override;
  bool done() const { return phase_ == Phase::done; }
  const Call& call() const { return call_; }

 private:
  friend class Group;
  friend class TuningRun;
  enum class Phase : uint8_t { enter, arrive, copy, reach, leave, depart, tune, finish, done };

  Result<void> prepare();
  void begin();
  Result<void> check_sizes() const;
  bool fits_small() const;
  Result<void> decide_small();
  Result<void> place();
  Result<void> place_tensors();
  Result<uint64_t> stage(const std::byte* from, uint64_t bytes);
  bool overwrites(const std::byte* input, uint64_t bytes) const;
  Result<uint64_t> readable(const std::byte* input, uint64_t bytes);
  Result<bool> step();
  Result<bool> tune();
  bool needs(uint32_t member, Phase phase) const;
  bool all_came(Phase phase);
  void note(FlightPhase phase);
  BoardCall shown() const;

  // Over several hosts.
  bool pushed() const;
  Result<void> begin_wide();
  Error wide_error();
  void stop(const std::shared_ptr<EngineJob>& job);
  std::shared_ptr<EngineJob> running() const { return tuning_ ? tuning_->job() : job_; }
  NearMember near_member(uint32_t member) const;

  // The work of one member, when all it needs have arrived (work.cc).
  Result<void> compare();
  Result<void> compare_others();
  Result<void> compare_with(uint32_t member) const;
  Result<void> work();
  Result<void> reduce();
  std::vector<const std::byte*> parts_of(uint32_t member, std::vector<LaneRange>& nodes) const;
  std::vector<const std::byte*> reduction_sources(std::vector<LaneRange>& nodes) const;
  Result<void> gather_all();
  Result<void> check_gathered() const;
  void copy_from(uint32_t member, uint64_t source_element, uint64_t target_element,
                 uint64_t elements);
  Result<void> exchange_all();
  bool copy_slices();
  const std::byte* tensor_of(uint32_t member, uint32_t tensor) const;
  const std::byte* input_of(uint32_t member) const;
  const BoardCall& call_of(uint32_t member) const;
  uint64_t counts_of(uint32_t member, uint32_t of) const;
  bool streams(uint64_t bytes) const;

  Group& group_;
  Call call_;
  const std::optional<TrialChoices> trial_;
  Phase phase_ = Phase::enter;
  bool small_ = false;         // our data travels with the call
  bool one_tick_ = false;      // and so does everybody's
  uint64_t input_ = kInSmall;  // offsets in the heap
  uint64_t output_ = kPrivate;
  bool placed_ = false;
  std::vector<uint64_t> part_inputs_;
  std::vector<uint64_t> staged_;   // scratch to be freed
  std::byte* copy_out_ = nullptr;  // from output_, when done
  uint64_t copy_out_bytes_ = 0;
  std::shared_ptr<Resharding> resharding_;
  uint32_t tick_ = 0;
  uint32_t call_number_ = 0;  // of the group's calls
  uint32_t flight_ = 0;       // number in the flight record
  uint32_t site_ = 0;
  uint32_t came_ = 0;  // members that are known to have come, from the first on
  std::shared_ptr<WideCall> wide_;
  std::shared_ptr<EngineJob> job_;  // that runs it
  std::unique_ptr<TuningRun> tuning_;
  std::optional<Error> error_;
};

class Group : public std::enable_shared_from_this<Group> {
 public:
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  uint32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  uint32_t rank_of(uint32_t index) const { return members_[index].rank; }
  uint32_t calls() const { return calls_; }  // begun so far

  // Begins; somebody has to wait for it, or to poll, for it to go on. Calls of a group are done in
  // the order in which they were begun.
  Result<std::shared_ptr<Operation>> start(Call call);
  Result<void> wait(Operation& operation);
  Result<void> wait(Operation& operation, Duration timeout);
  Task<Result<void>> wait(World& world, std::shared_ptr<Operation> operation, Duration timeout);
  Result<bool> poll(Operation& operation);
  Result<void> run(Call call);

  const Tuning& tuning() const { return tuning_; }
  // For tests. Data of up to this many bytes travels with its call; the same for all members. At
  // most kSmallBytes.
  void set_small_bytes(uint64_t bytes) { tuning_.small_bytes = bytes; }
  // For tests. Calls of so much memory and more store past the caches; the same for all members.
  void set_stream_bytes(uint64_t bytes) { tuning_.stream_bytes = bytes; }
  // For tests. Between hosts, where it fits; the same for all members.
  void set_way(std::optional<RailWay> way) { way_ = way; }
  const GroupHosts& hosts() const { return *hosts_; }
  Heap& heap() const { return fabric_.heap(); }
  Parking& parking() const { return fabric_.parking(); }
  bool wide() const { return hosts_->hosts() > 1; }

  // Room for a shared output: in the heap, known to all members of this host. To be called by all.
  Result<std::byte*> allocate_shared(uint64_t bytes);

 private:
  friend class Fabric;
  friend class Operation;
  friend class TuningRun;
  struct Member {
    uint32_t rank = 0;
    uint32_t slot = 0;
    BoardGroup* board = nullptr;  // of members of this host
  };
  class Meeting;

  Group(Fabric& fabric, std::string name, std::vector<uint32_t> ranks, uint64_t key);
  Result<void> claim(const std::string& site);
  Result<void> meet();
  Task<Result<void>> meet(World& world);
  bool is_of(const std::vector<uint32_t>& ranks, const std::string& name) const;
  Result<bool> find_members();
  Result<void> look_for(Member& member);
  Error disagreement(const Member& member);
  // A member that does not come, since it waits for us in a call of another group, which we have
  // not begun, and cannot as long as we wait for it here.
  struct Crossing {
    uint32_t member = 0;
    std::shared_ptr<Group> group;
    const BoardGroup* theirs = nullptr;  // their side of it
    uint32_t call = 0;
    bool operator==(const Crossing&) const = default;
  };
  std::optional<Crossing> find_crossing() const;
  // Both groups: neither can go on.
  Error give_up_crossed(const Crossing& crossing);
  // Why a member gave up this group.
  Error told_by(const Member& member) const;
  // Those of this host that were not found, and what they ask for instead.
  std::string missing() const;
  void ring_all();
  // What the first member brings along, for all.
  TuningWords tuning_words() const;
  void adopt_tuning(const TuningWords& words);
  // That a TuningRun has found; member 0 keeps it for the next program.
  void take_tuning(const TuningWords& words);
  bool measures_in(const Call& call) const;
  // Of the front operation and those behind it, as many as go.
  Result<void> advance();
  bool reached(uint32_t member, uint32_t tick) const;
  bool all_reached(uint32_t tick);
  void publish(const BoardCall& call, const BoardDetail& detail, Bytes small);
  // Of members that have not published this tick, and never will.
  Result<void> look_for_failures(uint32_t tick, uint32_t call);
  Error give_up(Error error, uint32_t call, std::optional<uint32_t> left = {});
  // Of calls from this one on, for those of other hosts.
  Refusal refusal(uint32_t call, Error why, std::optional<uint32_t> left) const;
  // The first call that is not done.
  uint32_t next_call() const { return calls_ - static_cast<uint32_t>(pending_.size()) + 1; }
  std::vector<uint32_t> elsewhere() const;  // members of other hosts
  std::string state_of(uint32_t member, uint32_t tick) const;
  BoardGroup& own() { return *members_[index_].board; }

  Fabric& fabric_;
  std::string name_;
  uint64_t key_;
  uint64_t identity_ = 0;   // of members' order and name: alike for all
  bool asked_for_ = false;  // with Fabric::group()
  uint64_t epoch_;
  uint32_t index_ = 0;
  uint32_t place_ = 0;  // among the groups of our board
  std::vector<Member> members_;
  std::shared_ptr<const GroupHosts> hosts_;
  std::vector<uint32_t> local_;  // members of this host, ourselves among them
  std::shared_ptr<Group> near_;  // those of this host as a group, if it was asked for
  std::optional<RailWay> way_;
  uint32_t tick_ = 0;     // the last that we published
  uint32_t calls_ = 0;    // begun so far
  uint32_t reached_ = 0;  // all have published this one, as far as we looked
  std::deque<std::shared_ptr<Operation>> pending_;
  std::optional<Error> broken_;
  FoldTree plain_;
  Tuning tuning_;                       // the same for all members
  TuneWhen measure_ = TuneWhen::never;  // likewise: whether it is still to be measured
  bool adopted_ = false;
};

}  // namespace tutti
