// How the members of a group lie over hosts: arithmetic.
//
// A member's place is its number among those of its host. Members of different hosts that have
// something to do with each other find each other by place: the partner of a place on a host with
// fewer members is the place modulo their number.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct GroupHosts {
  std::vector<std::vector<uint32_t>> members;  // by host, ascending; hosts by their first member
  std::vector<uint32_t> host_of;               // by member
  std::vector<uint32_t> place_of;              // by member

  // `nodes` says of each member on which machine it is.
  static GroupHosts of(const std::vector<uint32_t>& nodes);

  uint32_t hosts() const { return static_cast<uint32_t>(members.size()); }
  uint32_t count(uint32_t host) const { return static_cast<uint32_t>(members[host].size()); }
  // Places that all hosts have.
  uint32_t rails() const;
  bool even() const;  // every host has as many members
  uint32_t partner(uint32_t host, uint32_t place) const {
    return members[host][place % count(host)];
  }
  // Members of another host whose partner on `member`'s host is `member`.
  std::vector<uint32_t> served_by(uint32_t member, uint32_t host) const;
};

}  // namespace tutti
