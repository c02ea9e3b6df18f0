// The network of a cluster as numbers: hosts whose cards have so much bandwidth each way, racks
// whose uplinks have less than their hosts together, and latency by distance.
//
// Like a cost table (costs.h) a model is a TOML file that says where its numbers are from, and
// results name it. The built-in one is sims/nets/two_tiers.toml.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

struct NetModel {
  std::string name = "two_tiers";
  std::string numbers_from = "assumed: 25 Gbit/s cards, racks of 32 with uplinks of a quarter";

  double host_bytes_per_s = 3.125e9;  // into a host, and as much out of it
  double hosts_per_rack = 32;
  double rack_bytes_per_s = 25e9;  // into a rack, and as much out of it
  // One way, and of a message of no bytes.
  double within_host_ns = 5000;
  double within_rack_ns = 12000;
  double between_racks_ns = 30000;
  double jitter_ns = 5000;  // added, uniform from 0 to this
  // Up to this a message goes behind those before it, link by link, and shares nothing: it would be
  // over before rates have found their level. 0: everything flows.
  double packet_bytes = 4096;
  // More than this is sent when its receiver has asked for it, as the tcp transport does.
  double eager_bytes = 16384;
  // Rates are found anew at most so often: flows begin and leave their share to others up to so
  // much later. 0: at every change.
  double resolve_ns = 0;

  struct Entry {
    std::string_view key;
    double NetModel::* value;
  };
  static std::span<const Entry> entries();
  // Refuses unknown and missing keys, and numbers that cannot be.
  static Result<NetModel> parse(std::string_view text, std::string_view file_name);

  uint32_t rack_of(uint32_t host) const { return host / static_cast<uint32_t>(hosts_per_rack); }
  int64_t latency_ns(uint32_t from, uint32_t to) const {
    if (from == to) return static_cast<int64_t>(within_host_ns);
    const bool near = rack_of(from) == rack_of(to);
    return static_cast<int64_t>(near ? within_rack_ns : between_racks_ns);
  }
};

}  // namespace tutti
