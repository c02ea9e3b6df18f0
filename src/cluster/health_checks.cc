#include "cluster/health_checks.h"

#include <algorithm>

#include "cluster/ask_port.h"

namespace tutti {
namespace {

// A service that is quick to start is not to be waited for longer than that: it is looked at soon
// and then half as often each time, until it was well once.
constexpr Duration kFirstLook = 50ms;
// However often a job file asks for it: a look costs the host something too.
constexpr Duration kShortestPause = 10ms;

Duration pause_of(const job::Health& health) {
  return std::max(kShortestPause, Duration(health.every_ns()));
}

}  // namespace

void HealthChecks::watch(ProcessId process, const job::Health& health) {
  forget(process);
  const Instant now = world_.clock().now();
  Watched& watched = watched_[process];
  watched.health = health;
  watched.life = next_life_++;
  watched.must_be_well = now + Duration(health.start_ns());
  watched.pause = std::min(kFirstLook, pause_of(health));
  watched.next_look = now + watched.pause;
  watched.why_not = "it was not looked at yet";
  owner_.on_health();
}

void HealthChecks::forget(ProcessId process) {
  const auto found = watched_.find(process);
  if (found == watched_.end()) return;
  const bool commanding = found->second.commanding;
  watched_.erase(found);
  if (commanding) owner_.kill_check(process);
}

const HealthChecks::Watched* HealthChecks::find(ProcessId process) const {
  const auto found = watched_.find(process);
  return found == watched_.end() ? nullptr : &found->second;
}

bool HealthChecks::well(ProcessId process) const {
  const Watched* watched = find(process);
  return watched != nullptr && watched->well;
}

std::string HealthChecks::ill(ProcessId process) const {
  const Watched* watched = find(process);
  if (watched == nullptr || !watched->ill) return "";
  return fmt::format("not well {} times in a row: {}", watched->failures, watched->why_not);
}

std::string HealthChecks::text(ProcessId process) const {
  const Watched* watched = find(process);
  if (watched == nullptr) return "";
  if (watched->why_not.empty()) return "well";
  return fmt::format("not well{}: {}", watched->well ? "" : " yet", watched->why_not);
}

Instant HealthChecks::due() const {
  Instant due = kNever;
  for (const auto& [process, watched] : watched_)
    if (!watched.asking)  // it ends by itself
      due = std::min(due, watched.late != kNever ? watched.late : watched.next_look);
  return due;
}

void HealthChecks::look() {
  const Instant now = world_.clock().now();
  for (auto& [process, watched] : watched_) {
    if (watched.late <= now) {
      owner_.kill_check(process);
      const Duration timeout(watched.health.timeout_ns());
      watched.next_look = std::max(watched.next_look, now + timeout);  // it needs time to die
      looked(watched, fmt::format("its check took longer than {}", format_duration(timeout)));
    } else if (watched.late == kNever && watched.next_look <= now && !watched.asking) {
      begin_look(process, watched);
    }
  }
}

void HealthChecks::begin_look(ProcessId process, Watched& watched) {
  const Instant now = world_.clock().now();
  const Duration every = pause_of(watched.health);
  watched.pause = watched.well ? every : std::min(2 * watched.pause, every);
  watched.next_look = now + watched.pause;
  if (watched.health.command().empty()) {
    watched.asking = true;
    strands_.spawn(ask(process, watched.life, watched.health));
    return;
  }
  if (watched.commanding) return looked(watched, "its last check cannot be ended");
  watched.commanding = true;
  watched.late = now + Duration(watched.health.timeout_ns());
  owner_.run_check(process);
}

Task<void> HealthChecks::ask(ProcessId process, uint64_t life, job::Health health) {
  const Instant deadline = world_.clock().now() + Duration(health.timeout_ns());
  auto asked = co_await ask_port(world_, std::move(health), deadline);
  const auto found = watched_.find(process);
  if (found == watched_.end() || found->second.life != life) co_return;
  found->second.asking = false;
  looked(found->second, asked ? std::string() : asked.error().message());
}

void HealthChecks::on_command(ProcessId process, std::string why_not) {
  const auto found = watched_.find(process);
  if (found == watched_.end() || !std::exchange(found->second.commanding, false)) return;
  // One that was late has its answer already.
  if (found->second.late != kNever) looked(found->second, std::move(why_not));
}

void HealthChecks::looked(Watched& watched, std::string why_not) {
  watched.late = kNever;
  watched.why_not = std::move(why_not);
  if (watched.why_not.empty()) {
    watched.failures = 0;
    watched.well = true;
  } else if (watched.well || watched.must_be_well <= world_.clock().now()) {
    watched.ill = ++watched.failures >= watched.health.failures();
  }
  if (watched.ill) watched.next_look = kNever;
  owner_.on_health();
}

Task<void> HealthChecks::end() {
  watched_.clear();
  strands_.cancel();
  (void)co_await strands_.join();
}

}  // namespace tutti
