#include "train/machine_peak.h"

#include <algorithm>

#include "kernels/fma_peak.h"

namespace tutti {
namespace {

constexpr Duration kShortest = 10ms;  // of a trial that counts
constexpr int kTrials = 7;            // the best is what the machine can do

}  // namespace

double measure_fma_peak(Team& team, const Parking& clock) {
  const auto seconds_of = [&](int64_t rounds) {
    const Instant start = clock.now();
    team.run([&](int) {
      volatile float sum = fma_chains(rounds);
      static_cast<void>(sum);
    });
    return std::max(to_seconds(clock.now() - start), 1e-9);
  };
  int64_t rounds = 1 << 12;
  while (seconds_of(rounds) < to_seconds(kShortest)) rounds *= 2;
  double best = seconds_of(rounds);
  for (int i = 1; i < kTrials; ++i) best = std::min(best, seconds_of(rounds));
  return static_cast<double>(rounds * fma_chain_flops() * team.threads()) / best;
}

}  // namespace tutti
