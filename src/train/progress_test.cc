#include "train/progress.h"

#include <doctest/doctest.h>

using namespace tutti;

TEST_CASE("progress is the mean over the steps since it was last told") {
  const TrainerPlan plan{.flops_a_step = 5e9, .tokens_a_step = 1000};
  ProgressMeter meter(plan, 500);
  meter.set_peak(10e9);
  for (int64_t step = 1; step <= 4; ++step)
    meter.add({.step = step, .loss = 5.0 - static_cast<double>(step), .took = 1s, .waited = 100ms});
  CHECK(meter.look({}).tokens_a_second == doctest::Approx(1000));
  const Progress progress = meter.take(3_MiB);
  CHECK(progress.tokens_a_second == doctest::Approx(1000));
  CHECK(progress_text(progress) ==
        "step   4/500  loss 1.0000  1,000 tokens/s  50 % of peak  3.0 MiB  10 % waiting for data  "
        "9 min left");
  CHECK(progress_json(progress)["gflops"] == doctest::Approx(5));
  meter.add({.step = 5, .took = 500ms});
  CHECK(meter.take({}).tokens_a_second == doctest::Approx(2000));
}

TEST_CASE("a model without tokens, at its end, tells what there is") {
  const Progress progress{.step = 10, .steps = 10, .loss = 0.25, .seconds_a_step = 3};
  CHECK(progress_text(progress) == "step 10/10  loss 0.2500");
}
