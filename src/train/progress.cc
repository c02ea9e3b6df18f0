#include "train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace tutti {
namespace {

constexpr double kWorthTelling = 0.01;  // of the time, waited for data

// 1234567 -> "1,234,567"
std::string with_commas(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

// "40 s", "3 min", "2 h 5 min": people plan by it, so no fractions.
std::string time_text(double seconds) {
  const auto minutes = static_cast<int64_t>(std::ceil(seconds / 60));
  if (seconds < 100) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace

std::string progress_text(const Progress& progress) {
  const auto width = fmt::format("{}", progress.steps).size();
  std::string text = fmt::format("step {:>{}}/{}  loss {:.4f}", progress.step, width,
                                 progress.steps, progress.loss);
  if (progress.tokens_a_second > 0)
    text += fmt::format("  {} tokens/s", with_commas(progress.tokens_a_second));
  if (progress.of_peak) text += fmt::format("  {:.0f} % of peak", *progress.of_peak * 100);
  if (progress.memory) text += fmt::format("  {}", format_bytes(*progress.memory));
  if (progress.workers > 1) {
    text += fmt::format("  {} workers", progress.workers);
    if (progress.behind >= kWorthTelling)
      text += fmt::format(", rank {} {:.0f} % slower", progress.slowest, progress.behind * 100);
    if (progress.communicated >= kWorthTelling)
      text += fmt::format("  {:.0f} % communicating", progress.communicated * 100);
  }
  if (progress.waited >= kWorthTelling)
    text += fmt::format("  {:.0f} % waiting for data", progress.waited * 100);
  const auto left = static_cast<double>(progress.steps - progress.step) * progress.seconds_a_step;
  if (left >= 1) text += fmt::format("  {} left", time_text(left));
  return text;
}

Json progress_json(const Progress& progress) {
  Json json = {{"step", progress.step},    {"steps", progress.steps},
               {"loss", progress.loss},    {"norm", progress.norm},
               {"rate", progress.rate},    {"seconds_a_step", progress.seconds_a_step},
               {"waited", progress.waited}};
  if (progress.tokens_a_second > 0) json["tokens_a_second"] = progress.tokens_a_second;
  if (progress.of_peak) json["of_peak"] = *progress.of_peak;
  if (progress.gflops) json["gflops"] = *progress.gflops;
  if (progress.memory) json["memory_bytes"] = *progress.memory;
  if (progress.workers > 1) {
    json["workers"] = progress.workers;
    json["slowest"] = progress.slowest;
    json["behind"] = progress.behind;
    json["communicated"] = progress.communicated;
  }
  return json;
}

void ProgressMeter::add(const StepSummary& report) {
  last_ = report;
  ++count_;
  took_ += report.took;
  waited_ += report.waited;
  communicated_ += report.communicated;
}

Progress ProgressMeter::look(std::optional<uint64_t> memory_bytes) const {
  const double seconds = std::max(to_seconds(took_), 1e-9);
  const auto count = static_cast<double>(count_);
  Progress progress{.step = last_.step,
                    .steps = steps_,
                    .loss = last_.loss,
                    .norm = last_.norm,
                    .rate = last_.rate,
                    .seconds_a_step = seconds / std::max(count, 1.0),
                    .tokens_a_second = count * static_cast<double>(plan_.tokens_a_step) / seconds,
                    .waited = to_seconds(waited_) / seconds,
                    .memory = memory_bytes,
                    .workers = workers_,
                    .slowest = last_.slowest,
                    .behind = to_seconds(last_.slowest_took - last_.fastest_took) /
                              std::max(to_seconds(last_.fastest_took), 1e-9),
                    .communicated = to_seconds(communicated_) / seconds};
  const double flops = count * plan_.flops_a_step / seconds;
  if (flops > 0) progress.gflops = flops / 1e9;
  if (flops > 0 && peak_flops_) progress.of_peak = flops / *peak_flops_;
  return progress;
}

Progress ProgressMeter::take(std::optional<uint64_t> memory_bytes) {
  const Progress progress = look(memory_bytes);
  count_ = 0;
  took_ = waited_ = communicated_ = Duration::zero();
  return progress;
}

}  // namespace tutti
