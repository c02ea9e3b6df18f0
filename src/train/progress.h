// How a run is going, as people and tools read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/trainer.h"

namespace tutti {

struct Progress {
  int64_t step = 0;
  int64_t steps = 0;  // of the whole run
  double loss = 0;    // of the last step
  double norm = 0;
  double rate = 0;
  double seconds_a_step = 0;
  double tokens_a_second = 0;      // 0: the model knows no tokens
  std::optional<double> of_peak;   // what it computes, as a part of what the machine could
  std::optional<double> gflops;    // a second
  double waited = 0;               // for data, as a part of the time
  std::optional<uint64_t> memory;  // bytes of this process
  uint32_t workers = 1;
  // Of several: the one that computes longest, and by which part of the fastest's time longer; and
  // the part of the time that this one waits for others.
  uint32_t slowest = 0;
  double behind = 0;
  double communicated = 0;
};

// "step 100/2000  loss 2.4312  3,512 tokens/s  61 % of peak  412 MiB  1 m 3 s left"
std::string progress_text(const Progress& progress);
Json progress_json(const Progress& progress);

// Means over the steps since it was last asked.
class ProgressMeter {
 public:
  ProgressMeter(const TrainerPlan& plan, int64_t steps, uint32_t workers = 1)
      : plan_(plan), steps_(steps), workers_(workers) {}

  // What the machine could do at most; until then nothing is compared with it.
  void set_peak(double flops) { peak_flops_ = flops; }
  bool has_peak() const { return peak_flops_.has_value(); }
  void add(const StepSummary& report);
  // After one step or more. The steps since the last take(), of which this is none.
  Progress look(std::optional<uint64_t> memory_bytes) const;
  Progress take(std::optional<uint64_t> memory_bytes);

 private:
  TrainerPlan plan_;
  int64_t steps_;
  uint32_t workers_;
  std::optional<double> peak_flops_;
  StepSummary last_;
  int64_t count_ = 0;
  Duration took_{};
  Duration waited_{};
  Duration communicated_{};
};

}  // namespace tutti
