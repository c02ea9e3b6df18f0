#include "fabric/group_hosts.h"

#include <algorithm>

namespace tutti {

GroupHosts GroupHosts::of(const std::vector<uint32_t>& nodes) {
  GroupHosts hosts;
  std::vector<uint32_t> known;
  for (uint32_t member = 0; member < nodes.size(); ++member) {
    const auto found = std::ranges::find(known, nodes[member]);
    const auto host = static_cast<uint32_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(nodes[member]);
      hosts.members.emplace_back();
    }
    hosts.host_of.push_back(host);
    hosts.place_of.push_back(hosts.count(host));
    hosts.members[host].push_back(member);
  }
  return hosts;
}

uint32_t GroupHosts::rails() const {
  uint32_t least = ~0U;
  for (uint32_t host = 0; host < hosts(); ++host) least = std::min(least, count(host));
  return least;
}

bool GroupHosts::even() const {
  return std::ranges::all_of(members,
                             [&](const auto& some) { return some.size() == members[0].size(); });
}

std::vector<uint32_t> GroupHosts::served_by(uint32_t member, uint32_t host) const {
  std::vector<uint32_t> served;
  const uint32_t own_count = count(host_of[member]);
  for (uint32_t place = place_of[member]; place < count(host); place += own_count)
    served.push_back(members[host][place]);
  return served;
}

}  // namespace tutti
