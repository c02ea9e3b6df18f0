// What things cost in simulation: processor time of handlers, and the speed of networks and disks.
//
// A table is a TOML file that says where and how its numbers were measured; every result in
// virtual time names the table it was made with, and shows what scaling each entry does to it.
// The built-in table has the numbers of sims/costs/loopback.toml.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

struct CostTable {
  std::string name = "loopback";
  std::string measured_on = "2-core AMD EPYC guest, Linux 6, Debian 12";
  std::string measured_with = "bench/sim_costs.cc";

  // Processor time of a host's one virtual core, in ns.
  double timer_ns = 300;  // a timer fires and its strand goes on
  double send_ns = 4063;  // a message is handed to the kernel
  double send_byte_ns = 0.06;
  double receive_ns = 4063;  // a message arrives and its reader goes on
  double receive_byte_ns = 0.06;
  double connect_ns = 22302;     // the side that connects
  double accept_ns = 22302;      // the side that accepts
  double handshake_ns = 422821;  // one side of a mutual TLS 1.3 handshake
  double spawn_ns = 545217;      // fork and exec, at the parent
  double exit_ns = 170047;       // the end of a process, at the kernel
  double disk_operation_ns = 866;
  double disk_byte_ns = 0.04;

  // Time that passes outside of the core.
  double within_host_ns = 5000;  // one way
  double within_rack_ns = 12000;
  double between_racks_ns = 30000;
  double jitter_ns = 5000;     // added, uniform from 0 to this
  double wire_byte_ns = 0.32;  // 25 Gbit/s out of each host
  double disk_latency_ns = 80000;
  double disk_sync_ns = 800000;
  double disk_transfer_byte_ns = 1.0;

  struct Entry {
    std::string_view key;
    double CostTable::* value;
  };
  static std::span<const Entry> entries();

  // Refuses unknown and missing keys, and numbers below zero.
  static Result<CostTable> parse(std::string_view text, std::string_view file_name);
  // This table with one entry multiplied; its name says so: "loopback, send_ns x2".
  Result<CostTable> scaled(std::string_view key, double factor) const;
  // For tests of order and logic alone: processor time is free, everything else as it was.
  CostTable without_processor_time() const;
};

}  // namespace tutti
