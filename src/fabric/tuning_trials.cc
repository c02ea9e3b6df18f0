#include "fabric/tuning_trials.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "fabric/board.h"

namespace tutti {

namespace {

using What = TuningTrial::What;

// The best of several counts, so that a disturbance has to come back each time.
constexpr int kRounds = 3;
// Of all trials; agreeing on them and finding memory takes some of the 300 ms that are allowed.
constexpr Duration kBudget = 200ms;
// By which the unusual has to be faster, and the usual may be slower.
constexpr double kClearly = 0.95;
constexpr Duration kUnknown = Duration::max();

constexpr uint64_t kSmallest = 512;
constexpr int kSmallCalls = 24;
constexpr uint64_t kStreamSizes[] = {6 << 20, 12 << 20, 24 << 20, 48 << 20};
// Of a rail, one for each class.
constexpr uint64_t kRailSizes[kRailClasses] = {4 << 10, 48 << 10, 512 << 10, 2 << 20};
constexpr int kRailCalls = 2;

bool faster(const Duration* unusual, const Duration* usual) {
  if (unusual == nullptr || usual == nullptr) return false;
  return static_cast<double>(unusual->count()) < kClearly * static_cast<double>(usual->count());
}

}  // namespace

TuningTrials::TuningTrials(Tuning defaults, uint32_t hosts) : defaults_(defaults) {
  if (hosts > 1) {
    for (const uint64_t bytes : kRailSizes) {
      add(What::reduce, bytes, kRailCalls);
      add(What::gather, bytes, kRailCalls);
    }
  } else {
    for (uint64_t bytes = kSmallest; bytes <= kSmallBytes; bytes *= 2)
      add(What::small, bytes, kSmallCalls);
    for (const uint64_t bytes : kStreamSizes) add(What::stream, bytes, 1);
  }
  best_.assign(list_.size(), kUnknown);
}

// All that can be done alike, one after the other.
void TuningTrials::add(What what, uint64_t bytes, int calls) {
  if (what == What::small || what == What::stream) {
    for (const bool wanted : {true, false})
      list_.push_back({.what = what, .bytes = bytes, .wanted = wanted, .calls = calls});
    return;
  }
  std::vector<RailWay> ways = {RailWay::direct, RailWay::halving, RailWay::tree};
  if (what == What::gather) ways = {RailWay::direct, RailWay::ring};
  for (const RailWay way : ways)
    list_.push_back({.what = what, .bytes = bytes, .way = way, .calls = calls});
}

uint64_t TuningTrials::most_bytes(uint32_t ranks) const {
  uint64_t most = 0;
  for (const TuningTrial& trial : list_)
    most = std::max(most, trial.what == What::stream  ? trial.bytes / (ranks + 1)
                          : trial.what == What::small ? trial.bytes
                                                      : trial.bytes * ranks);
  return most;
}

// As long as the last time, or in proportion to the next smaller one of its kind.
Duration TuningTrials::expected(size_t trial) const {
  if (best_[trial] != kUnknown) return best_[trial];
  const TuningTrial& wanted = list_[trial];
  for (size_t i = trial; i-- > 0;) {
    const TuningTrial& other = list_[i];
    if (other.what != wanted.what || other.bytes >= wanted.bytes || other.way != wanted.way ||
        other.wanted != wanted.wanted)
      continue;
    if (best_[i] == kUnknown) return kUnknown;  // that one was too long already
    return best_[i] * static_cast<int64_t>(wanted.bytes / other.bytes);
  }
  return Duration(0);
}

int TuningTrials::next(Duration passed) {
  for (; round_ < kRounds; ++round_, next_ = 0) {
    while (next_ < list_.size()) {
      const size_t trial = next_++;
      const Duration needed = expected(trial);
      if (passed >= kBudget) return -1;
      if (needed != kUnknown && needed <= kBudget - passed) return static_cast<int>(trial);
    }
  }
  return -1;
}

void TuningTrials::note(size_t trial, Duration took) {
  best_[trial] = std::min(best_[trial], took);
}

const Duration* TuningTrials::time_of(What what, uint64_t bytes, bool wanted, RailWay way) const {
  for (size_t i = 0; i < list_.size(); ++i) {
    const TuningTrial& trial = list_[i];
    if (trial.what == what && trial.bytes == bytes && trial.wanted == wanted && trial.way == way)
      return best_[i] == kUnknown ? nullptr : &best_[i];
  }
  return nullptr;
}

// From the smallest on, as long as one tick is better.
uint64_t TuningTrials::decide_small() const {
  uint64_t limit = kSmallest / 2;
  for (uint64_t bytes = kSmallest; bytes <= kSmallBytes; bytes *= 2) {
    const Duration* once = time_of(What::small, bytes, true, RailWay::direct);
    const Duration* twice = time_of(What::small, bytes, false, RailWay::direct);
    const bool usual = bytes <= defaults_.small_bytes;
    if (usual ? faster(twice, once) : !faster(once, twice)) break;
    limit = bytes;
  }
  return limit;
}

// From the largest down, as long as storing past the caches is better.
uint64_t TuningTrials::decide_stream() const {
  uint64_t limit = 2 * std::end(kStreamSizes)[-1];
  for (size_t i = std::size(kStreamSizes); i-- > 0;) {
    const uint64_t bytes = kStreamSizes[i];
    const Duration* past = time_of(What::stream, bytes, true, RailWay::direct);
    const Duration* through = time_of(What::stream, bytes, false, RailWay::direct);
    const bool usual = bytes >= defaults_.stream_bytes;
    if (usual ? faster(through, past) : !faster(past, through)) break;
    limit = bytes;
  }
  return limit;
}

RailWay TuningTrials::decide_way(What what, size_t size_class, RailWay usual) const {
  const uint64_t bytes = kRailSizes[size_class];
  RailWay best = usual;
  for (int way = 0; way < kRailWays; ++way) {
    const Duration* time = time_of(what, bytes, true, static_cast<RailWay>(way));
    const Duration* least = time_of(what, bytes, true, best);
    const bool clearly = faster(time, time_of(what, bytes, true, usual));
    if (clearly && (best == usual || *time < *least)) best = static_cast<RailWay>(way);
  }
  return best;
}

Tuning TuningTrials::decide() const {
  Tuning tuning = defaults_;
  tuning.origin = TuningOrigin::measured;
  if (list_[0].what == What::small) {
    tuning.small_bytes = decide_small();
    tuning.stream_bytes = decide_stream();
    return tuning;
  }
  for (size_t i = 0; i < kRailClasses; ++i) {
    tuning.reduces[i] = decide_way(What::reduce, i, defaults_.reduces[i]);
    tuning.gathers[i] = decide_way(What::gather, i, defaults_.gathers[i]);
  }
  return tuning;
}

}  // namespace tutti
