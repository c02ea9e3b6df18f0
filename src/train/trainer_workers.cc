// A trainer among other workers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "base/version.h"
#include "run/initialise.h"
#include "train/trainer.h"

namespace tutti {
namespace {

// Of the wait for the next epoch: as long as fabrics wait.
constexpr Duration kEpochTimeout = 10min;

uint64_t hash_of(std::string_view text) { return hash64(as_bytes(text)); }

std::string text_of(const TrainerOptions& options) {
  const auto& [step, schedule] = std::tie(options.step, options.schedule);
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", step.atoms, step.lanes,
                     static_cast<int>(step.sharding.what), step.max_norm, step.adamw.beta1,
                     step.adamw.beta2, step.adamw.epsilon, step.adamw.decay, schedule.rate,
                     schedule.least, schedule.warm_up, schedule.end,
                     static_cast<int>(schedule.decline), options.seed);
}

}  // namespace

// Which of the step's lanes are this worker's.
Result<void> Trainer::deal_lanes() {
  StepOptions& step = options_.step;
  const uint32_t workers = host_.workers == nullptr ? 1 : host_.workers->size();
  if (workers > step.lanes)
    return fail(
        Code::invalid,
        "{} workers cannot share {} lane{}: each takes one at least. Use as many lanes as "
        "the most workers that the run shall ever have (lanes={}); the bits of a run follow "
        "from their number, not from that of the workers",
        workers, step.lanes, step.lanes == 1 ? "" : "s", workers);
  step.sharding.workers = workers;
  step.sharding.worker = host_.workers == nullptr ? 0 : host_.workers->rank();
  if (workers == 1) step.sharding.what = ShardedState::none;
  step.own_lanes =
      share_of_lanes(step.lanes, workers, host_.workers == nullptr ? 0 : host_.workers->rank());
  return {};
}

Result<void> Trainer::enter_epoch() {
  if (host_.workers == nullptr) return host_.epoch.enter(kEpochTimeout);
  TRY_DO(host_.workers->enter(host_.epoch, kEpochTimeout));
  if (met_epoch_ == host_.epoch.epoch()) return {};
  TRY_DO(meet());
  met_epoch_ = host_.epoch.epoch();
  return {};
}

// All have the same model, options and state, or get them. Who was replaced, or was stopped before
// a step that others took, is behind.
Result<void> Trainer::meet() {
  Workers& workers = *host_.workers;
  std::vector<Alike> parts{{"another version of tutti", hash_of(kVersion)},
                           {"another model", hash_of(model_.graph.text())},
                           {"other options", hash_of(text_of(options_))}};
  parts.insert(parts.end(), options_.alike.begin(), options_.alike.end());
  TRY_DO(workers.compare(parts));
  const auto done = static_cast<uint64_t>(words_[kDone]);
  // A step more for those that have a state at all.
  TRY(const std::vector<uint64_t> steps, workers.gather({has_state() ? done + 1 : 0}));
  const auto source = static_cast<uint32_t>(std::ranges::max_element(steps) - steps.begin());
  if (std::ranges::all_of(steps, [&](uint64_t each) { return each == steps[source]; }))
    return compare_weights();
  if (options_.step.sharding.what == ShardedState::none) return take_state_of(source);
  return fail(Code::unavailable,
              "the workers' states are of different steps, and nobody has the shards of those that "
              "are behind: go on from the run's last file (resume)");
}

// Of shards there is nothing to compare.
Result<void> Trainer::compare_weights() {
  Hasher hasher;
  for (const Parameter& parameter : model_.parameters)
    for (const std::string& name :
         {parameter.name, first_moment_name(parameter.name), second_moment_name(parameter.name)})
      if (type_of(parameter, name != parameter.name) == parameter.type)
        hasher.update(Bytes(state(name), static_cast<size_t>(parameter.type.bytes())));
  return host_.workers->compare({Alike{"other weights", hasher.digest64()}});
}

Result<void> Trainer::take_state_of(uint32_t source) {
  std::vector<uint64_t> done{static_cast<uint64_t>(words_[kDone])};
  TRY_DO(host_.workers->broadcast(source, std::as_writable_bytes(std::span(done))));
  const bool takes = host_.workers->rank() != source;
  if (takes) words_[kBorn] = 0;
  for (const Parameter& parameter : model_.parameters)
    for (const std::string& name :
         {parameter.name, first_moment_name(parameter.name), second_moment_name(parameter.name)})
      TRY_DO(host_.workers->broadcast(source,
                                      {state(name), static_cast<size_t>(parameter.type.bytes())}));
  if (!takes) return {};
  step_->states_changed();
  words_[kDone] = static_cast<int64_t>(done[0]);
  words_[kCommitting] = 0;
  words_[kBorn] = 1;
  return {};
}

// What one worker found is everybody's end of the step.
Result<std::optional<std::string>> Trainer::told_by_all(std::optional<std::string> culprit) {
  if (host_.workers == nullptr) return culprit;
  TRY(const std::vector<uint64_t> found, host_.workers->gather({culprit ? uint64_t{1} : 0}));
  if (culprit) return culprit;
  const auto other = std::ranges::find(found, 1U);
  if (other == found.end()) return culprit;
  return fmt::format("rank {} says what made it", other - found.begin());
}

Duration Trainer::communicated_so_far() const {
  return host_.workers == nullptr ? Duration::zero() : host_.workers->waited();
}

Result<void> Trainer::compare_times(StepSummary& summary, Duration took, Duration communicated) {
  TRY(const std::vector<double> all,
      host_.workers->gather_reals({to_seconds(took - communicated)}));
  const auto [fastest, slowest] = std::ranges::minmax_element(all);
  const auto duration = [](double seconds) {
    return Duration(static_cast<int64_t>(seconds * 1e9));
  };
  summary.slowest = static_cast<uint32_t>(slowest - all.begin());
  summary.slowest_took = duration(*slowest);
  summary.fastest_took = duration(*fastest);
  summary.communicated = communicated;
  return {};
}

// From the first to before the end, of so many.
std::pair<int64_t, int64_t> Trainer::own_part(int64_t count) const {
  if (host_.workers == nullptr) return {0, count};
  const int64_t rank = host_.workers->rank();
  const int64_t size = host_.workers->size();
  return {count * rank / size, count * (rank + 1) / size};
}

// As many for each worker where all take part in each: some compute one that does not count.
int64_t Trainer::rounds_of(int64_t batches) const {
  const auto [first, end] = own_part(batches);
  if (options_.step.sharding.what != ShardedState::all) return end - first;
  const int64_t size = host_.workers->size();
  return (batches + size - 1) / size;
}

// Layer by layer, as files call them.
void Trainer::initialise_shards(const Parameter& parameter, std::span<float> weights) {
  const Shards shards = shards_of(parameter, options_.step.sharding);
  const auto own = static_cast<size_t>(shards.own());
  for (int64_t row = 0; row < shards.rows; ++row)
    initial_values(parameter.init, options_.seed, layer_name(parameter.name, row),
                   shards.own_first(), weights.subspan(static_cast<size_t>(row) * own, own));
}

}  // namespace tutti
