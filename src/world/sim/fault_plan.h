// Which faults befall the hosts of a simulation, how often, and for how long. Everything is drawn
// from the seed. Profiles are called "none", "light" and "heavy"; a TOML file can say its own:
//
//   crash = { every = "20s", lasts = "3s" }
//   partition = { every = "15s", lasts = "2s" }
//   code_fault_probability = 0.05
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace tutti {

enum class FaultKind : unsigned char {
  crash,      // a host loses power, and comes back
  pause,      // a host stands still
  slow,       // a host's processor time costs more
  partition,  // two sets of hosts do not reach each other
  one_way,    // one set does not reach another, but hears it
  slow_link,  // latency between two sets grows
  loss,       // some packets between two sets come only when sent again
  disk_error,
  disk_full,
};
constexpr size_t kFaultKinds = 9;
std::string_view fault_kind_name(FaultKind kind);

struct FaultPlan {
  std::string name = "none";
  // Means of exponential distributions, over the whole simulation; `every` of zero is never.
  struct Rate {
    Duration every{};
    Duration lasts{};
  };
  std::array<Rate, kFaultKinds> rates{};
  uint32_t clock_drift_ppm = 0;       // each host's is drawn up to this, fast or slow
  Duration calendar_error{};          // each host's calendar is wrong by up to this
  double code_fault_probability = 0;  // of a TUTTI_FAULT place that the seed switched on
  Rate& operator[](FaultKind kind) { return rates[static_cast<size_t>(kind)]; }
  const Rate& operator[](FaultKind kind) const { return rates[static_cast<size_t>(kind)]; }

  static Result<FaultPlan> named(std::string_view name);
  static Result<FaultPlan> parse(std::string_view text, std::string_view file_name);
};

}  // namespace tutti
