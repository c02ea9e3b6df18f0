// A trainer among other workers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "base/version.h"
#include "train/trainer.h"

namespace tutti {
namespace {

// Of the wait for the next epoch: as long as fabrics wait.
constexpr Duration kEpochTimeout = 10min;

uint64_t hash_of(std::string_view text) { return hash64(as_bytes(text)); }

std::string text_of(const TrainerOptions& options) {
  const auto& [step, schedule] = std::tie(options.step, options.schedule);
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", step.atoms, step.lanes,
                     static_cast<int>(step.sharding.what), options.mesh, options.rules,
                     step.max_norm, step.adamw.beta1, step.adamw.beta2, step.adamw.epsilon,
                     step.adamw.decay, schedule.rate, schedule.least, schedule.warm_up,
                     schedule.end, static_cast<int>(schedule.decline), options.seed);
}

}  // namespace

// Which part of the model is this worker's, and which of the step's lanes.
Result<void> Trainer::deal_lanes() {
  StepOptions& step = options_.step;
  const uint32_t workers = host_.workers == nullptr ? 1 : host_.workers->size();
  const uint32_t rank = host_.workers == nullptr ? 0 : host_.workers->rank();
  TRY(mesh_, WorkerMesh::make(options_.mesh, options_.rules, workers));
  TRY_DO(check_rules(mesh_.users_rules(), model_.graph));
  step.place = {.mesh = mesh_.model(), .rules = mesh_.rules(), .rank = mesh_.model_rank(rank)};
  const uint32_t shares = mesh_.data_workers();
  if (shares > step.lanes)
    return fail(
        Code::invalid,
        "{} workers cannot share {} lane{}: each takes one at least. Use as many lanes as "
        "the most workers that the run shall ever have (lanes={}); the bits of a run follow "
        "from their number, not from that of the workers",
        shares, step.lanes, step.lanes == 1 ? "" : "s", shares);
  if (!options_.mesh.empty()) step.sharding.what = mesh_.state();
  if (shares == 1) step.sharding.what = ShardedState::none;
  step.sharding.workers = shares;
  step.sharding.worker = mesh_.data_worker(rank);
  step.own_lanes = share_of_lanes(step.lanes, shares, step.sharding.worker);
  return {};
}

Result<void> Trainer::enter_epoch() {
  if (host_.workers == nullptr) {
    TRY_DO(host_.epoch.enter(kEpochTimeout));
    if (!has_state() || words_[kDecided] != words_[kReady] || words_[kReady] <= words_[kDone])
      return {};
    return roll_forward(words_[kReady]);
  }
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
  TRY_DO(workers.arrange(mesh_));
  std::vector<uint64_t> own(kWords);
  std::ranges::copy(std::span(words_, kWords), own.begin());
  TRY(const std::vector<uint64_t> told, workers.gather(own));
  TRY(const std::vector<uint64_t> steps, catch_up(told));
  const uint64_t newest = std::ranges::max(steps);
  if (std::ranges::count(steps, newest) == std::ssize(steps)) {
    hear_of_others(told);
    return compare_weights();
  }
  // Of every part of the model somebody has the newest.
  for (uint32_t rank = 0; rank < workers.size(); ++rank)
    if (options_.step.sharding.what != ShardedState::none ||
        std::ranges::none_of(mesh_.with_same_part(rank),
                             [&](uint32_t other) { return steps[other] == newest; }))
      return fail(Code::unavailable,
                  "the workers' states are of different steps, and nobody has the shards of those "
                  "that are behind: go on from the run's last file (resume)");
  const auto ranks = mesh_.with_same_part(workers.rank());
  TRY_DO(
      take_state_of(*std::ranges::find(ranks, newest, [&](uint32_t rank) { return steps[rank]; })));
  hear_of_others(told);
  return {};
}

// A step that was decided is committed by those who have what that takes. Of each worker the step
// that it then is at, and one more; none for those without a state.
Result<std::vector<uint64_t>> Trainer::catch_up(const std::vector<uint64_t>& told) {
  Workers& workers = *host_.workers;
  const auto word = [&](uint32_t rank, Word which) {
    return static_cast<int64_t>(told[rank * kWords + which]);
  };
  int64_t newest = 0;
  for (uint32_t rank = 0; rank < workers.size(); ++rank)
    if (word(rank, kBorn) != 0)
      newest = std::max({newest, word(rank, kDone), word(rank, kDecided)});
  const auto has_scratch = [&](uint32_t rank) {
    return word(rank, kBorn) != 0 && word(rank, kReady) == newest;
  };
  bool all_have_scratch = true;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) all_have_scratch &= has_scratch(rank);
  const auto can_commit = [&](uint32_t rank) {
    return has_scratch(rank) && word(rank, kDone) + 1 == newest &&
           (all_have_scratch || !commits_together_);
  };
  std::vector<uint64_t> steps;
  bool anybody = false;
  for (uint32_t rank = 0; rank < workers.size(); ++rank) {
    anybody |= can_commit(rank);
    const int64_t done = can_commit(rank) ? newest : word(rank, kDone);
    steps.push_back(word(rank, kBorn) != 0 ? static_cast<uint64_t>(done) + 1 : 0);
  }
  const bool mine = can_commit(workers.rank());
  if (!mine && !(anybody && commits_together_)) return steps;
  const auto told_before = caught_up_;
  TRY_DO(roll_forward(newest));
  if (!mine) caught_up_ = told_before;
  return steps;
}

Result<void> Trainer::roll_forward(int64_t step) {
  number_ = step;
  rate_ = static_cast<float>(rate_at(options_.schedule, step - 1));
  TRY_DO(commit());
  step_->states_changed();
  caught_up_ = summary_of(step);
  return {};
}

// What was evaluated and saved of this step: nobody was past it without all.
void Trainer::hear_of_others(const std::vector<uint64_t>& told) {
  for (size_t at = 0; at < told.size(); at += kWords)
    for (const Word word : {kEvaluated, kSaved}) {
      if (static_cast<int64_t>(told[at + word]) != steps_done() || told[at + kBorn] == 0) continue;
      if (word == kEvaluated) words_[kEvaluation] = static_cast<int64_t>(told[at + kEvaluation]);
      words_[word] = steps_done();
    }
}

Result<void> Trainer::meet_others() {
  TRY_DO(enter_epoch());
  caught_up_.reset();  // they ask for the last step
  return {};
}

Result<void> Trainer::note_saved() {
  const int64_t step = steps_done();
  if (host_.workers != nullptr) TRY_DO(host_.workers->gather({uint64_t{0}}));
  words_[kSaved] = step;
  return {};
}

// What all have whole is compared with all, and the rest with those of the same part. Of shards
// there is nothing to compare.
Result<void> Trainer::compare_weights() {
  Hasher whole;
  Hasher part;
  for (size_t i = 0; i < own_.size(); ++i)
    for (const std::string& name :
         {own_[i].name, first_moment_name(own_[i].name), second_moment_name(own_[i].name)})
      if (type_of(own_[i], name != own_[i].name) == own_[i].type)
        (own_[i].type == model_.parameters[i].type ? whole : part)
            .update(Bytes(state(name), static_cast<size_t>(own_[i].type.bytes())));
  TRY_DO(host_.workers->compare({Alike{"other weights", whole.digest64()}}));
  if (options_.step.place.alone()) return {};
  return host_.workers->compare({Alike{"other weights", part.digest64()}},
                                static_cast<uint64_t>(options_.step.place.rank));
}

Result<void> Trainer::take_state_of(uint32_t source) {
  std::vector<uint64_t> done;
  for (const Word word : {kDone, kLoss, kNorm}) done.push_back(static_cast<uint64_t>(words_[word]));
  TRY_DO(host_.workers->broadcast(source, std::as_writable_bytes(std::span(done))));
  const bool takes = host_.workers->rank() != source;
  if (takes) words_[kBorn] = 0;
  for (const Parameter& parameter : own_)
    for (const std::string& name :
         {parameter.name, first_moment_name(parameter.name), second_moment_name(parameter.name)})
      TRY_DO(host_.workers->broadcast(source,
                                      {state(name), static_cast<size_t>(parameter.type.bytes())}));
  if (!takes) return {};
  step_->states_changed();
  begin_at(static_cast<int64_t>(done[0]));
  words_[kLoss] = static_cast<int64_t>(done[1]);
  words_[kNorm] = static_cast<int64_t>(done[2]);
  return {};
}

// Before anything is asked of those with other parts.
Result<void> Trainer::meet_parts() {
  if (options_.step.place.alone()) return {};
  return enter_epoch();
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
  const int64_t worker = options_.step.sharding.worker;
  const int64_t workers = mesh_.data_workers();
  return {count * worker / workers, count * (worker + 1) / workers};
}

// As many for each worker where all take part in each: some compute one that does not count.
int64_t Trainer::rounds_of(int64_t batches) const {
  const auto [first, end] = own_part(batches);
  if (options_.step.sharding.what != ShardedState::all) return end - first;
  const int64_t workers = mesh_.data_workers();
  return (batches + workers - 1) / workers;
}

void Trainer::each_piece(size_t parameter, bool of_moments, const PieceVisit& visit) const {
  const Parameter& own = own_[parameter];
  const Type& whole = model_.parameters[parameter].type;
  const int64_t layer = whole.elements() / (own.stacked() ? whole.dims[0].size : 1);
  const auto run = [&](size_t at, int64_t first, int64_t elements) {
    each_run(parts_[parameter], first, elements,
             [&](int64_t in_part, int64_t in_whole, int64_t count) {
               for (int64_t to = in_part - first; count > 0;) {
                 const int64_t some = std::min(count, layer - in_whole % layer);
                 visit(at + static_cast<size_t>(to) * sizeof(float), in_whole / layer,
                       in_whole % layer, some);
                 to += some;
                 in_whole += some;
                 count -= some;
               }
             });
  };
  if (type_of(own, of_moments) == own.type) return run(0, 0, own.type.elements());
  const Shards shards = shards_of(own, options_.step.sharding);
  for (int64_t row = 0; row < shards.rows; ++row)
    run(static_cast<size_t>(row * shards.own()) * sizeof(float),
        row * shards.row + shards.own_first(), shards.own());
}

}  // namespace tutti
