// The learning rate of a step: it grows evenly during the warm-up, then falls to its end, or stays.
// A function of the step alone, so that a run that goes on has the rates of one that never ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace tutti {

enum class Decline : uint8_t { constant, linear, cosine };

std::string_view decline_name(Decline decline);
Result<Decline> decline_named(std::string_view name);

struct Schedule {
  double rate = 1e-3;   // at its highest
  double least = 0;     // from `end` on
  int64_t warm_up = 0;  // steps until it is at its highest
  int64_t end = 0;      // the step at which it is `least`
  Decline decline = Decline::constant;
};

Result<void> check_schedule(const Schedule& schedule);

// The rate of the step that comes after so many.
double rate_at(const Schedule& schedule, int64_t steps_done);

}  // namespace tutti
