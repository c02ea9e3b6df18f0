#include "train/schedule.h"

#include <array>
#include <cmath>
#include <numbers>

#include "base/suggest.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 3> kDeclines = {"constant", "linear", "cosine"};

}  // namespace

std::string_view decline_name(Decline decline) { return kDeclines[static_cast<size_t>(decline)]; }

Result<Decline> decline_named(std::string_view name) {
  for (size_t i = 0; i < kDeclines.size(); ++i)
    if (kDeclines[i] == name) return static_cast<Decline>(i);
  const auto near = suggest(name, kDeclines);
  return fail(Code::invalid, "there is no schedule '{}'; use constant, linear or cosine{}", name,
              near ? fmt::format(" (did you mean {}?)", *near) : "");
}

Result<void> check_schedule(const Schedule& schedule) {
  const bool finite = std::isfinite(schedule.rate) && std::isfinite(schedule.least);
  if (!finite || schedule.rate < 0 || schedule.least < 0 || schedule.least > schedule.rate)
    return fail(
        Code::invalid,
        "a learning rate that goes from {} to {}; both must be 0 or more, and the second not "
        "above the first",
        schedule.rate, schedule.least);
  if (schedule.warm_up < 0)
    return fail(Code::invalid, "a warm-up of {} steps; use 0 or more", schedule.warm_up);
  if (schedule.decline != Decline::constant && schedule.end < schedule.warm_up)
    return fail(Code::invalid,
                "the learning rate is to be at its least after {} steps, within the warm-up of {}: "
                "train for more steps, or warm up in fewer",
                schedule.end, schedule.warm_up);
  return {};
}

double rate_at(const Schedule& schedule, int64_t steps_done) {
  const auto done = static_cast<double>(steps_done);
  if (steps_done < schedule.warm_up)
    return schedule.rate * (done + 1) / static_cast<double>(schedule.warm_up + 1);
  if (schedule.decline == Decline::constant) return schedule.rate;
  if (steps_done >= schedule.end) return schedule.least;
  const double way = (done - static_cast<double>(schedule.warm_up)) /
                     static_cast<double>(schedule.end - schedule.warm_up);
  const double height =
      schedule.decline == Decline::linear ? 1 - way : 0.5 * (1 + std::cos(std::numbers::pi * way));
  return schedule.least + height * (schedule.rate - schedule.least);
}

}  // namespace tutti
