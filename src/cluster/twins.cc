#include "cluster/twins.h"

#include <utility>

namespace tutti {
namespace {

// Who is refused tries again every second, so what is older is over.
constexpr int64_t kRecent_ns = 600'000'000'000;
// Of names that were refused: somebody who has that many certificates has all of them.
constexpr size_t kMostSeen = 1000;

}  // namespace

Error twin_error() {
  return {
      Code::exists,
      "another agent is this host already; two hosts must not have one name: end one of them, or "
      "let it join with another --name"};
}

std::optional<cluster::Hanging> Twins::came(const cluster::Hanging& newer) {
  const auto known = known_.find(newer.node());
  if (known == known_.end()) {
    known_.emplace(newer.node(), newer);
    return {};
  }
  cluster::Hanging before = std::exchange(known->second, newer);
  if (before.instance() == newer.instance()) return {};  // it found another place
  return before;
}

std::optional<cluster::Hanging> Twins::is_there(const cluster::Hanging& older) {
  const auto known = known_.find(older.node());
  if (known == known_.end() || known->second.instance() == older.instance()) return {};
  return std::exchange(known->second, older);
}

bool Twins::is_another(NodeId node, uint64_t instance) const {
  const auto known = known_.find(node);
  return known != known_.end() && instance != 0 && known->second.instance() != instance;
}

void Twins::note(const std::string& name, int64_t now_unix_ns) {
  if (!seen_.contains(name) && seen_.size() >= kMostSeen) return;
  cluster::Twin& twin = seen_[name];
  twin.set_name(name);
  twin.set_times(twin.times() + 1);
  twin.set_last_unix_ns(now_unix_ns);
}

std::vector<cluster::Twin> Twins::recent(int64_t now_unix_ns) const {
  std::vector<cluster::Twin> recent;
  for (const auto& [name, twin] : seen_)
    if (now_unix_ns - twin.last_unix_ns() < kRecent_ns) recent.push_back(twin);
  return recent;
}

}  // namespace tutti
