#include "world/sim/links.h"

#include <algorithm>

namespace tutti {

HostSet HostSet::range(uint32_t first, uint32_t end) {
  HostSet set;
  if (first < end) set.ranges_.emplace_back(first, end);
  return set;
}

HostSet HostSet::of(std::vector<uint32_t> hosts) {
  std::sort(hosts.begin(), hosts.end());
  HostSet set;
  for (const uint32_t host : hosts) {
    if (!set.ranges_.empty() && host < set.ranges_.back().second) continue;
    if (!set.ranges_.empty() && set.ranges_.back().second == host) {
      ++set.ranges_.back().second;
    } else {
      set.ranges_.emplace_back(host, host + 1);
    }
  }
  return set;
}

bool HostSet::contains(uint32_t host) const {
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), host,
                                [](uint32_t wanted, auto& range) { return wanted < range.first; });
  return after != ranges_.begin() && host < std::prev(after)->second;
}

uint64_t LinkTable::add(HostSet from, HostSet to, LinkFault fault) {
  rules_.push_back({next_number_, std::move(from), std::move(to), fault});
  return next_number_++;
}

uint64_t LinkTable::partition(const HostSet& a, const HostSet& b) {
  rules_.push_back({next_number_, a, b, {.cut = true}});
  rules_.push_back({next_number_, b, a, {.cut = true}});
  return next_number_++;
}

void LinkTable::heal(uint64_t number) {
  std::erase_if(rules_, [number](const Rule& rule) { return rule.number == number; });
}

LinkFault LinkTable::fault(uint32_t from, uint32_t to) const {
  LinkFault sum;
  if (from == to) return sum;  // a host always reaches itself
  for (const Rule& rule : rules_) {
    if (!rule.from.contains(from) || !rule.to.contains(to)) continue;
    sum.cut |= rule.fault.cut;
    sum.loss = 1 - (1 - sum.loss) * (1 - rule.fault.loss);
    sum.extra_latency += rule.fault.extra_latency;
  }
  return sum;
}

}  // namespace tutti
