#include "world/sim/costs.h"

#include <array>
#include <cmath>

#include "base/toml.h"

namespace tutti {

namespace {

constexpr std::array kEntries = {
    CostTable::Entry{"timer_ns", &CostTable::timer_ns},
    CostTable::Entry{"send_ns", &CostTable::send_ns},
    CostTable::Entry{"send_byte_ns", &CostTable::send_byte_ns},
    CostTable::Entry{"receive_ns", &CostTable::receive_ns},
    CostTable::Entry{"receive_byte_ns", &CostTable::receive_byte_ns},
    CostTable::Entry{"connect_ns", &CostTable::connect_ns},
    CostTable::Entry{"accept_ns", &CostTable::accept_ns},
    CostTable::Entry{"handshake_ns", &CostTable::handshake_ns},
    CostTable::Entry{"spawn_ns", &CostTable::spawn_ns},
    CostTable::Entry{"exit_ns", &CostTable::exit_ns},
    CostTable::Entry{"disk_operation_ns", &CostTable::disk_operation_ns},
    CostTable::Entry{"disk_byte_ns", &CostTable::disk_byte_ns},
    CostTable::Entry{"within_host_ns", &CostTable::within_host_ns},
    CostTable::Entry{"within_rack_ns", &CostTable::within_rack_ns},
    CostTable::Entry{"between_racks_ns", &CostTable::between_racks_ns},
    CostTable::Entry{"jitter_ns", &CostTable::jitter_ns},
    CostTable::Entry{"wire_byte_ns", &CostTable::wire_byte_ns},
    CostTable::Entry{"disk_latency_ns", &CostTable::disk_latency_ns},
    CostTable::Entry{"disk_sync_ns", &CostTable::disk_sync_ns},
    CostTable::Entry{"disk_transfer_byte_ns", &CostTable::disk_transfer_byte_ns},
};
constexpr size_t kProcessorEntries = 12;  // the first ones

}  // namespace

std::span<const CostTable::Entry> CostTable::entries() { return kEntries; }

Result<CostTable> CostTable::parse(std::string_view text, std::string_view file_name) {
  CostTable table;
  TRY(TomlReader toml, TomlReader::parse(text, file_name));
  toml.require("name", table.name);
  toml.require("measured_on", table.measured_on);
  toml.require("measured_with", table.measured_with);
  for (const Entry& entry : kEntries) {
    if (!toml.require(entry.key, table.*entry.value)) continue;
    const double value = table.*entry.value;
    if (!std::isfinite(value) || value < 0) toml.complain(entry.key, "must not be below zero");
  }
  TRY_DO(toml.finish());
  return table;
}

Result<CostTable> CostTable::scaled(std::string_view key, double factor) const {
  for (const Entry& entry : kEntries) {
    if (entry.key != key) continue;
    CostTable table = *this;
    table.*entry.value *= factor;
    table.name = fmt::format("{}, {} x{:g}", name, key, factor);
    return table;
  }
  return fail(Code::invalid, "cost table {} has no entry '{}'", name, key);
}

CostTable CostTable::without_processor_time() const {
  CostTable table = *this;
  table.name = name + ", processor time free";
  for (size_t i = 0; i < kProcessorEntries; ++i) table.*kEntries[i].value = 0;
  return table;
}

}  // namespace tutti
