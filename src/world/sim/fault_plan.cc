#include "world/sim/fault_plan.h"

#include "base/suggest.h"
#include "base/toml.h"

namespace tutti {

namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "crash",     "pause", "slow",       "partition", "one_way",
    "slow_link", "loss",  "disk_error", "disk_full"};

FaultPlan light() {
  FaultPlan plan;
  plan.name = "light";
  plan[FaultKind::crash] = {20s, 2s};
  plan[FaultKind::pause] = {15s, 500ms};
  plan[FaultKind::slow] = {20s, 2s};
  plan[FaultKind::partition] = {20s, 2s};
  plan[FaultKind::one_way] = {30s, 2s};
  plan[FaultKind::slow_link] = {15s, 2s};
  plan[FaultKind::loss] = {15s, 2s};
  plan[FaultKind::disk_error] = {30s, 1s};
  plan[FaultKind::disk_full] = {60s, 1s};
  plan.clock_drift_ppm = 20;
  plan.calendar_error = 10ms;
  plan.code_fault_probability = 0.01;
  return plan;
}

FaultPlan heavy() {
  FaultPlan plan = light();
  plan.name = "heavy";
  for (FaultPlan::Rate& rate : plan.rates) {
    rate.every /= 8;
    rate.lasts *= 2;
  }
  plan.clock_drift_ppm = 200;
  plan.calendar_error = 5s;
  plan.code_fault_probability = 0.1;
  return plan;
}

}  // namespace

std::string_view fault_kind_name(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

Result<FaultPlan> FaultPlan::named(std::string_view name) {
  if (name == "none") return FaultPlan{};
  if (name == "light") return light();
  if (name == "heavy") return heavy();
  return fail(Code::invalid,
              "there is no fault profile '{}'; use none, light, heavy or a TOML file", name);
}

Result<FaultPlan> FaultPlan::parse(std::string_view text, std::string_view file_name) {
  constexpr uint32_t kMostDriftPpm = 100'000;
  FaultPlan plan;
  plan.name = file_name;
  TRY(TomlReader toml, TomlReader::parse(text, file_name));
  toml.read("name", plan.name);
  for (size_t i = 0; i < kFaultKinds; ++i) {
    if (!toml.has(kNames[i])) continue;
    TomlReader rate = toml.table(kNames[i]);
    rate.require("every", plan.rates[i].every);
    rate.require("lasts", plan.rates[i].lasts);
    if (plan.rates[i].every <= 0s) rate.complain("every", "must be above zero");
    if (plan.rates[i].lasts < 0s) rate.complain("lasts", "must not be below zero");
  }
  toml.read("clock_drift_ppm", plan.clock_drift_ppm);
  if (plan.clock_drift_ppm > kMostDriftPpm) toml.complain("clock_drift_ppm", "is at most 100000");
  toml.read("calendar_error", plan.calendar_error);
  toml.read("code_fault_probability", plan.code_fault_probability);
  if (plan.code_fault_probability < 0 || plan.code_fault_probability > 1)
    toml.complain("code_fault_probability", "is from 0 to 1");
  TRY_DO(toml.finish());
  return plan;
}

}  // namespace tutti
