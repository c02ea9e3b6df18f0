#include <algorithm>
#include <cstring>
#include <numeric>

#include "fabric/call_words.h"
#include "fabric/fold.h"
#include "fabric/group.h"
#include "fabric/share.h"

namespace tutti {

namespace {

// Elements of our input, all of which are read.
uint64_t input_elements(const Call& call, uint32_t size, uint32_t index) {
  switch (call.kind) {
    case CallKind::barrier: return 0;
    case CallKind::broadcast: return index == call.root ? call.elements : 0;
    case CallKind::scatter: return index == call.root ? call.elements * size : 0;
    case CallKind::all_to_all:
      if (call.counts.empty()) return call.elements * size;
      return std::accumulate(call.counts.begin(), call.counts.end(), uint64_t{0});
    default: return call.elements;
  }
}

// Elements of our output, as far as we know before the others have come.
uint64_t output_elements(const Call& call, uint32_t size, uint32_t index) {
  switch (call.kind) {
    case CallKind::barrier:
    case CallKind::reshard: return 0;
    case CallKind::reduce_scatter:
      return scattered_share(call.elements, call.counts, size, index).elements;
    case CallKind::all_to_all:
      if (call.counts.empty()) return call.elements * size;
      return std::accumulate(call.incoming.begin(), call.incoming.end(), uint64_t{0});
    case CallKind::gather:
      if (index != call.root) return 0;
      [[fallthrough]];
    case CallKind::all_gather: return call.elements;  // and those of the others
    default: return call.elements;
  }
}

}  // namespace

Operation::Operation(Group& group, Call call, std::optional<TrialChoices> trial)
    : group_(group), call_(std::move(call)), trial_(trial) {}

Operation::~Operation() {
  stop(running());
  for (const uint64_t offset : staged_) group_.fabric_.heap().free(offset);
}

Result<void> Operation::check_sizes() const {
  const uint32_t size = group_.size();
  if (call_.root >= size)
    return fail(Code::invalid, "there is no member {} among {}", call_.root, size);
  if (call_.shared_output && call_.kind != CallKind::all_reduce &&
      call_.kind != CallKind::all_gather)
    return fail(Code::invalid, "only all_reduce and all_gather have a shared output");
  if (call_.lanes > kMostLanes)
    return fail(Code::invalid, "a reduction has at most {} lanes", kMostLanes);
  if (call_.lanes != 0 && (!reduces(call_.kind) || call_.parts.empty()))
    return fail(Code::invalid, "lanes come with their parts, in a reduction");
  if (call_.kind == CallKind::reduce_scatter) {
    const uint64_t sum = std::accumulate(call_.counts.begin(), call_.counts.end(), uint64_t{0});
    if (!call_.counts.empty() && (call_.counts.size() != size || sum != call_.elements))
      return fail(Code::invalid, "counts of {} members that sum to {} do not fit {} elements of {}",
                  call_.counts.size(), sum, call_.elements, size);
    if (call_.counts.empty() && call_.elements % size != 0)
      return fail(
          Code::invalid,
          "{} elements cannot be scattered evenly over {}; say how many each gets in counts",
          call_.elements, size);
  }
  if (call_.kind == CallKind::all_to_all &&
      (call_.counts.size() != call_.incoming.size() ||
       (!call_.counts.empty() && call_.counts.size() != size)))
    return fail(Code::invalid, "all_to_all of {} members wants as many counts, out and in", size);
  const uint64_t needed = input_elements(call_, size, group_.index());
  if (call_.parts.empty() && call_.input_elements.value_or(needed) < needed)
    return fail(Code::invalid, "{} takes {} elements, and its input has {}",
                call_kind_name(call_.kind), needed, *call_.input_elements);
  const uint64_t made = output_elements(call_, size, group_.index());
  if (call_.output_elements.value_or(made) < made)
    return fail(Code::invalid, "{} gives {} elements, and its output has room for {}",
                call_kind_name(call_.kind), made, *call_.output_elements);
  return {};
}

// Whether others read our input while our output is written over it.
bool Operation::overwrites(const std::byte* input, uint64_t bytes) const {
  const uint64_t element = dtype_bytes(call_.type);
  const bool gathers = call_.kind == CallKind::all_gather || call_.kind == CallKind::gather;
  uint64_t room = output_elements(call_, group_.size(), group_.index());
  if (gathers && room != 0) room = call_.output_elements.value_or(call_.elements * group_.size());
  const std::byte* output = call_.output;
  if (bytes == 0 || output == nullptr || input >= output + room * element ||
      output >= input + bytes)
    return false;
  if (gathers) return input != output + group_.index() * call_.elements * element;
  if (call_.kind == CallKind::reduce_scatter) {
    const Share share =
        scattered_share(call_.elements, call_.counts, group_.size(), group_.index());
    return output != input + share.first * element;
  }
  return input != output || (call_.kind != CallKind::all_reduce);
}

// Where in the heap others may read it.
Result<uint64_t> Operation::readable(const std::byte* input, uint64_t bytes) {
  const auto offset = group_.fabric_.heap().find(input, bytes);
  if (offset && !overwrites(input, bytes)) return *offset;
  return stage(input, bytes);
}

Result<uint64_t> Operation::stage(const std::byte* from, uint64_t bytes) {
  TRY(const uint64_t offset, group_.fabric_.heap().allocate(bytes));
  staged_.push_back(offset);
  if (from != nullptr) copy_bytes(group_.fabric_.heap().at(offset), from, bytes, false);
  return offset;
}

Result<void> Operation::prepare() {
  TRY_DO(check_sizes());
  if (call_.kind == CallKind::reshard) return place_tensors();
  if (fits_small() || call_.kind == CallKind::barrier) return {};
  placed_ = true;
  return place();
}

// Decided alike by all: by what they must agree on. Those of all_gather may differ, and are looked
// at when they are there.
bool Operation::fits_small() const {
  if (group_.size() == 1 || group_.wide() || call_.kind == CallKind::reshard) return false;
  const uint64_t element = dtype_bytes(call_.type);
  const uint64_t alike = call_.kind == CallKind::scatter || call_.kind == CallKind::all_to_all
                             ? call_.elements * group_.size() * element
                             : call_.elements * element;
  const uint64_t limit = trial_ ? trial_->small_bytes : group_.tuning_.small_bytes;
  return alike <= limit && !call_.shared_output && call_.parts.empty() &&
         call_.kind != CallKind::gather && call_.counts.empty();
}

// When it is our turn: a call before this one may have changed the limit since it was begun.
Result<void> Operation::decide_small() {
  small_ = fits_small();
  if (small_) {
    input_ = kInSmall;
    output_ = kPrivate;
    copy_out_ = nullptr;
    return {};
  }
  if (placed_ || call_.kind == CallKind::barrier || call_.kind == CallKind::reshard) return {};
  placed_ = true;
  return place();
}

// Of what others read: a table of where it lies, in the heap like the rest.
Result<void> Operation::place_tensors() {
  const Heap& heap = group_.fabric_.heap();
  std::vector<uint32_t> ranks;
  std::vector<bool> far;
  const GroupHosts& hosts = group_.hosts();
  for (uint32_t member = 0; member < group_.size(); ++member) {
    ranks.push_back(group_.rank_of(member));
    far.push_back(hosts.host_of[member] != hosts.host_of[group_.index()]);
  }
  TRY(resharding_, Resharding::make(call_, ranks[group_.index()], ranks, std::move(far)));
  call_.elements = resharding_->tensors();
  std::vector<uint64_t> table(resharding_->tensors(), kPrivate);
  for (uint32_t i = 0; i < table.size(); ++i) {
    if (!resharding_->shared(i)) continue;
    auto offset = heap.find(call_.inputs[i], resharding_->input_bytes(i));
    if (!offset) {
      TRY(offset, stage(call_.inputs[i], resharding_->input_bytes(i)));
    }
    table[i] = *offset;
  }
  const Bytes bytes = std::as_bytes(std::span(table));
  TRY(input_, stage(bytes.data(), bytes.size()));
  return {};
}

// Puts into the heap what is not there.
Result<void> Operation::place() {
  Heap& heap = group_.fabric_.heap();
  const uint64_t element = dtype_bytes(call_.type);
  const uint64_t bytes = input_elements(call_, group_.size(), group_.index()) * element;
  for (const LanePart& part : call_.parts) {
    TRY(const uint64_t offset, readable(part.input, bytes));
    part_inputs_.push_back(offset);
  }
  if (call_.parts.empty() && bytes != 0) {
    TRY(input_, readable(call_.input, bytes));
  }
  // Any other output is written by its owner.
  if (!pushed() && !call_.shared_output) return {};
  uint64_t whole =
      (call_.kind == CallKind::all_gather ? call_.output_elements.value_or(0) : call_.elements) *
      element;
  if (call_.shared_output && call_.kind != CallKind::all_reduce) whole = 0;
  if (auto offset = heap.find(call_.output, whole)) {
    output_ = *offset;
    return {};
  }
  if (call_.shared_output)
    return fail(Code::invalid, "a shared output is in the heap; see allocate_shared");
  if (call_.kind == CallKind::all_gather && whole == 0)
    return fail(Code::invalid,
                "over several hosts the output of all_gather is in the heap, or output_elements "
                "says how large it is");
  copy_out_ = call_.output;
  copy_out_bytes_ = whole;
  if (call_.input == call_.output && call_.parts.empty() && input_ != kInSmall) {
    output_ = input_;
    return {};
  }
  TRY(output_, stage(nullptr, whole));
  return {};
}

// Whether others write into our output.
bool Operation::pushed() const {
  if (call_.kind == CallKind::all_reduce) return true;
  return group_.wide() && (call_.kind == CallKind::all_gather || call_.kind == CallKind::broadcast);
}

void Operation::begin() {
  FlightRecorder& flight = group_.fabric_.flight_;
  site_ = flight.site(call_.site);
  call_number_ = ++group_.calls_;
  flight_ = flight.begin(group_.place_, call_, call_number_, site_);
}

void Operation::note(FlightPhase phase) {
  if (trial_) return;  // it is part of the call that people made
  group_.fabric_.flight_.note(group_.place_, flight_, phase);
}

BoardCall Operation::shown() const {
  return {.kind = call_.kind,
          .type = call_.type,
          .op = call_.op,
          .parts = static_cast<uint8_t>(call_.parts.size()),
          .elements = call_.elements,
          .input = input_,
          .output = output_,
          .root = call_.root,
          .site = site_,
          .call = call_number_,
          .lanes = call_.lanes,
          .signature = signature_of(call_),
          .room = call_.output_elements.value_or(kUnknownRoom)};
}

bool Operation::needs(uint32_t member, Phase phase) const {
  if (group_.wide()) return true;
  const bool root = group_.index() == call_.root;
  const bool arriving = phase == Phase::arrive;
  const auto size = static_cast<int64_t>(group_.size());
  switch (call_.kind) {
    case CallKind::broadcast:
    case CallKind::scatter:
      if (small_ && arriving) return true;
      return arriving ? member == call_.root : root;
    case CallKind::gather: return arriving ? root : member == call_.root;
    case CallKind::shift: {
      if (small_ && arriving) return true;
      const int64_t away = arriving ? -int64_t{call_.distance} : int64_t{call_.distance};
      return member == (((group_.index() + away) % size) + size) % size;
    }
    case CallKind::reshard:
      return arriving ? resharding_->reads_from(member) : resharding_->is_read_by(member);
    default: return true;
  }
}

bool Operation::all_came(Phase phase) {
  for (; came_ < group_.local_.size(); ++came_) {
    const uint32_t member = group_.local_[came_];
    if (needs(member, phase) && !group_.reached(member, tick_)) return false;
  }
  return true;
}

Result<bool> Operation::advance() {
  if (phase_ == Phase::done) return true;
  if (error_) return fail(*error_);
  auto advanced = group_.advance();
  if (!advanced) return fail(std::move(advanced).error());
  if (phase_ == Phase::done) return true;
  const bool publishing = phase_ == Phase::enter || phase_ == Phase::leave || phase_ == Phase::tune;
  TRY_DO(group_.look_for_failures(publishing ? group_.tick_ : tick_, call_number_));
  return false;
}

Result<bool> Operation::step() {
  if (group_.broken_) return fail(*group_.broken_);
  switch (phase_) {
    case Phase::enter: {
      if (!trial_) group_.fabric_.flight_.enter(group_.place_, flight_);
      if (!group_.all_reached(group_.tick_)) return false;
      auto decided = decide_small();
      if (!decided) {
        note(FlightPhase::failed);
        error_ = group_.give_up(std::move(decided).error(), call_number_);
        return fail(*error_);
      }
      Bytes small;
      std::vector<uint64_t> table;
      if (small_) {
        const uint64_t elements = input_elements(call_, group_.size(), group_.index());
        small = {call_.input, elements * dtype_bytes(call_.type)};
      } else if (!call_.parts.empty()) {
        for (size_t i = 0; i < call_.parts.size(); ++i) {
          const LaneRange lanes = call_.parts[i].lanes;
          table.insert(table.end(), {lanes.first, lanes.count, part_inputs_[i]});
        }
        small = std::as_bytes(std::span(table));
      } else if (call_.kind == CallKind::all_to_all) {
        small = std::as_bytes(std::span(call_.counts));
      }
      if (const auto counts = shown_counts(call_); !counts.empty()) {
        table.insert(table.end(), counts.begin(), counts.end());
        small = std::as_bytes(std::span(table));
      }
      note(FlightPhase::arrived);
      group_.publish(shown(), detail_of(call_), small);
      tick_ = group_.tick_;
      phase_ = Phase::arrive;
      came_ = 0;
      [[fallthrough]];
    }
    case Phase::arrive: {
      if (!all_came(Phase::arrive)) return false;
      auto worked = group_.wide() ? begin_wide() : work();
      if (!worked) {
        note(FlightPhase::failed);
        error_ = group_.give_up(std::move(worked).error(), call_number_);
        return fail(*error_);
      }
      if (one_tick_) {
        phase_ = Phase::tune;
        return step();
      }
      phase_ = Phase::copy;
      [[fallthrough]];
    }
    case Phase::copy:  // while the engine is at work
      if (resharding_ != nullptr && !copy_slices()) return false;
      phase_ = Phase::reach;
      [[fallthrough]];
    case Phase::reach:
      if (job_ != nullptr) {
        if (!job_->done()) return false;
        if (!job_->result()) {
          note(FlightPhase::failed);
          error_ = wide_error();
          return fail(*error_);
        }
        wide_->finish();
      }
      note(FlightPhase::worked);
      phase_ = Phase::leave;
      [[fallthrough]];
    case Phase::leave:
      if (!group_.all_reached(group_.tick_)) return false;
      if (auto same = compare_others(); !same) {
        note(FlightPhase::failed);
        error_ = group_.give_up(std::move(same).error(), call_number_);
        return fail(*error_);
      }
      group_.publish({.kind = CallKind::done}, {}, {});
      tick_ = group_.tick_;
      phase_ = Phase::depart;
      came_ = 0;
      [[fallthrough]];
    case Phase::depart:
      if (!all_came(Phase::depart)) return false;
      phase_ = Phase::tune;
      [[fallthrough]];
    case Phase::tune: {
      TRY(const bool tuned, tune());
      if (!tuned) return false;
      phase_ = Phase::finish;
      [[fallthrough]];
    }
    case Phase::finish:
      if (copy_out_ != nullptr)
        copy_bytes(copy_out_, group_.fabric_.heap().at(output_), copy_out_bytes_, false);
      note(FlightPhase::done);
      phase_ = Phase::done;
      [[fallthrough]];
    case Phase::done: return true;
  }
  return true;
}

// Why the engine did not do its part. What others cannot do either they are told.
Error Operation::wide_error() {
  const Error error = job_->result().error();
  if (error.code() == Code::unavailable && wide_->left())
    return group_.give_up(error, call_number_, wide_->left());
  return error.code() == Code::invalid ? group_.give_up(error, call_number_) : error;
}

// All have made this call: a good moment to measure, if that is still to be done.
Result<bool> Operation::tune() {
  if (trial_) return true;
  if (tuning_ == nullptr && !group_.measures_in(call_)) return true;
  if (tuning_ == nullptr) tuning_ = std::make_unique<TuningRun>(group_, call_number_);
  auto stepped = tuning_->step();
  if (!stepped) {
    note(FlightPhase::failed);
    error_ = stepped.error();
    return fail(*error_);
  }
  if (*stepped) tuning_ = nullptr;
  return *stepped;
}

// All of this host have come: their engines go on.
Result<void> Operation::begin_wide() {
  TRY_DO(compare());
  one_tick_ = false;
  Fabric& fabric = group_.fabric_;
  WideOptions options{.transport = &fabric.transport(),
                      .clock = &fabric.options_.engine->world().clock(),
                      .hosts = group_.hosts_,
                      .index = group_.index(),
                      .call = call_,
                      .output = output_ == kPrivate ? call_.output : fabric.heap().at(output_),
                      .scope = group_.key_,
                      .number = trial_ ? trial_->number : call_of(group_.index()).call,
                      .way = trial_ ? trial_->way : group_.way_,
                      .reduces = group_.tuning_.reduces,
                      .gathers = group_.tuning_.gathers,
                      .signature = call_of(group_.index()).signature ^ group_.identity_,
                      .text = describe(group_.own(), tick_, fabric.board()),
                      .resharding = resharding_,
                      .heap = fabric.heap().at(0)};
  // Members of other hosts were not asked when the group was made.
  if (group_.asked_for_) options.text += fmt::format(" in {}", group_.own().asked);
  for (uint32_t member = 0; member < group_.size(); ++member)
    options.ranks.push_back(group_.rank_of(member));
  for (const uint32_t member : group_.local_) options.near.push_back(near_member(member));
  wide_ = std::make_shared<WideCall>(std::move(options));
  TRY_DO(wide_->prepare());
  job_ = fabric.on_engine([wide = wide_] { return wide->run(); });
  return {};
}

NearMember Operation::near_member(uint32_t member) const {
  const Heap& heap = group_.fabric_.heap();
  const BoardCall& call = call_of(member);
  NearMember near{.elements = call.elements,
                  .input = call.input == kInSmall ? nullptr : heap.at(call.input),
                  .output = call.output == kPrivate ? nullptr : heap.at(call.output),
                  .room = call.room};
  if (call_.lanes != 0) {
    std::vector<LaneRange> nodes;
    const auto sources = parts_of(member, nodes);
    for (size_t i = 0; i < nodes.size(); ++i) near.parts.push_back({nodes[i], sources[i]});
  }
  if (call_.kind == CallKind::all_to_all && !call_.counts.empty())
    for (uint32_t of = 0; of < group_.size(); ++of) near.counts.push_back(counts_of(member, of));
  return near;
}

// Whatever the engine still does with our memory is over when this returns.
void Operation::stop(const std::shared_ptr<EngineJob>& job) {
  if (job == nullptr || job->done()) return;
  job->cancel();
  job->wait();
}

// Only the first of a group's calls is under way.
void Operation::abandon() {
  stop(group_.pending_.empty() ? running() : group_.pending_.front()->running());
}

Task<void> Operation::abandon(World& world) {
  const auto job = group_.pending_.empty() ? running() : group_.pending_.front()->running();
  if (job == nullptr || job->done()) co_return;
  job->cancel();
  while (!job->done()) (void)co_await world.clock().sleep(1us);
}

std::string Operation::missing() const {
  if (busy()) {
    const Operation& front = *group_.pending_.front();
    return fmt::format("nobody; {} of {} are copied, in {} of group {} at {}",
                       format_bytes(front.resharding_->bytes_done()),
                       format_bytes(front.resharding_->bytes()), call_kind_name(front.call_.kind),
                       group_.name_, front.call_.site);
  }
  std::string text;
  const uint32_t tick = phase_ == Phase::enter || phase_ == Phase::leave ? group_.tick_ : tick_;
  for (const uint32_t member : group_.local_)
    if (!group_.reached(member, tick))
      text += fmt::format("{}{}", text.empty() ? "" : ", ", group_.state_of(member, tick));
  if (phase_ == Phase::reach && wide_ != nullptr)
    text = fmt::format("ranks {} of other hosts", fmt::join(wide_->awaited(), ", "));
  if (tuning_ != nullptr) text = fmt::format("tuning, {}", tuning_->missing());
  return fmt::format("in {} of group {} at {}: {}", call_kind_name(call_.kind), group_.name_,
                     call_.site, text);
}

uint32_t Operation::waits_for() const {
  if (phase_ != Phase::arrive && phase_ != Phase::depart) return kParkedForAny;
  if (group_.pending_.empty() || group_.pending_.front().get() != this ||
      came_ >= group_.local_.size())
    return kParkedForAny;
  return 1 + group_.members_[group_.local_[came_]].slot;
}

void Operation::note_wait(FlightRecorder& flight) const { flight.wait_in(1 + group_.place_); }

bool Operation::busy() const {
  return !group_.pending_.empty() && group_.pending_.front()->phase_ == Phase::copy;
}

// Every call that is read must be the same as ours.
Result<void> Operation::compare() {
  one_tick_ = small_ || call_.kind == CallKind::barrier;
  for (const uint32_t member : group_.local_) {
    if (!needs(member, Phase::arrive)) continue;
    const BoardCall& theirs = call_of(member);
    if (call_.kind == CallKind::all_gather && theirs.input != kInSmall && theirs.elements != 0)
      one_tick_ = false;
    TRY_DO(compare_with(member));
  }
  return {};
}

// And those that were not read: all have arrived by now, and none can have gone on.
Result<void> Operation::compare_others() {
  for (const uint32_t member : group_.local_)
    if (!needs(member, Phase::arrive)) TRY_DO(compare_with(member));
  return {};
}

Result<void> Operation::compare_with(uint32_t member) const {
  const BoardCall& ours = call_of(group_.index());
  const BoardCall& theirs = call_of(member);
  const bool same = theirs.signature == ours.signature;
  // Of one host: each has a heap of its own.
  const bool together = !call_.shared_output || theirs.output == ours.output;
  if (same && together) [[likely]]
    return {};
  const auto words = [&](uint32_t of) {
    const Group::Member& who = group_.members_[of];
    return fmt::format("rank {} {}", who.rank,
                       describe(*who.board, tick_, group_.fabric_.heap().board(who.slot)));
  };
  return fail(
      Code::invalid, "ranks do not {} in group {}: {}, {}",
      same ? "give the same memory for a shared output, as shared() does," : "call the same",
      group_.name_, words(group_.index()), words(member));
}

Result<void> Operation::work() {
  TRY_DO(compare());
  switch (call_.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_scatter: return reduce();
    case CallKind::all_gather: return gather_all();
    case CallKind::all_to_all: return exchange_all();
    case CallKind::broadcast:
      if (group_.index() != call_.root || call_.input != call_.output)
        copy_from(call_.root, 0, 0, call_.elements);
      return {};
    case CallKind::scatter:
      copy_from(call_.root, group_.index() * call_.elements, 0, call_.elements);
      return {};
    case CallKind::gather:
      if (group_.index() == call_.root) return gather_all();
      return {};
    case CallKind::shift: {
      const auto size = static_cast<int64_t>(group_.size());
      const int64_t from = (((group_.index() - int64_t{call_.distance}) % size) + size) % size;
      copy_from(static_cast<uint32_t>(from), 0, 0, call_.elements);
      return {};
    }
    default: return {};
  }
}

}  // namespace tutti
