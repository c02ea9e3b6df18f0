// Of the stage: agents that die or leave, and the tree that heals.
#include <csignal>

#include "sims/cluster_stage.h"
#include "world/sim/process_table.h"

namespace tutti::sims {
namespace {

constexpr Duration kTreeLook = 20ms;
constexpr Duration kLeavePatience = 2s;
constexpr Duration kLeavePause = 5ms;

}  // namespace

Task<Result<void>> ClusterStage::leave(uint32_t host, Duration time) {
  Agent* agent = agents_[host];
  if (agent == nullptr || !agent->in_tree()) co_return {};
  agent->tree().leave_for(kLongestAway);
  const Instant patience = sim_.clock().now() + kLeavePatience;
  while (agents_[host] == agent && !agent->tree().away_for(host) && sim_.clock().now() < patience)
    CO_TRY_DO(co_await sim_.clock().sleep(kLeavePause));
  if (agents_[host] != agent || !agent->tree().away_for(host)) co_return {};
  TUTTI_PROBE("stage: an agent is away by announcement");
  away_until_[host] = sim_.clock().now() + time;
  kill_agent(host);
  co_return co_await sim_.clock().sleep(time);
}

void ClusterStage::kill_agent(uint32_t host) {
  if (sim_.host(host).up() && agent_pids_[host] != 0)
    (void)sim_.host(host).process_table().signal(agent_pids_[host], SIGKILL);
}

bool ClusterStage::is_whole() const {
  if (head_ == nullptr || !head_->ready()) return false;
  for (uint32_t host = 1; host < sim_.hosts(); ++host)
    if (agents_[host] == nullptr || !agents_[host]->in_tree() || agents_[host]->tree().is_root())
      return false;
  return head_->tree().alive() == RangeSet(0, sim_.hosts() - 1);
}

Task<Result<void>> ClusterStage::whole_again() {
  const Instant began = sim_.clock().now();
  while (!is_whole() && !sim_.failure() && sim_.clock().now() < began + 4 * kTreeHeals)
    CO_TRY_DO(co_await sim_.clock().sleep(kTreeLook));
  const Duration took = sim_.clock().now() - began;
  sim_.figure("tree_heals_s", to_seconds(took));
  sim_.check(took <= kTreeHeals, "the tree was whole {} after the last fault",
             format_duration(took));
  co_return {};
}

}  // namespace tutti::sims
