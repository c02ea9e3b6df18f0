#include "world/sim/net_model.h"

#include <array>
#include <cmath>

#include "base/toml.h"

namespace tutti {

namespace {

constexpr std::array kEntries = {
    NetModel::Entry{"host_bytes_per_s", &NetModel::host_bytes_per_s},
    NetModel::Entry{"hosts_per_rack", &NetModel::hosts_per_rack},
    NetModel::Entry{"rack_bytes_per_s", &NetModel::rack_bytes_per_s},
    NetModel::Entry{"within_host_ns", &NetModel::within_host_ns},
    NetModel::Entry{"within_rack_ns", &NetModel::within_rack_ns},
    NetModel::Entry{"between_racks_ns", &NetModel::between_racks_ns},
    NetModel::Entry{"jitter_ns", &NetModel::jitter_ns},
    NetModel::Entry{"packet_bytes", &NetModel::packet_bytes},
    NetModel::Entry{"eager_bytes", &NetModel::eager_bytes},
    NetModel::Entry{"resolve_ns", &NetModel::resolve_ns},
};
constexpr size_t kDivisors = 3;  // the first ones: at least 1

}  // namespace

std::span<const NetModel::Entry> NetModel::entries() { return kEntries; }

Result<NetModel> NetModel::parse(std::string_view text, std::string_view file_name) {
  NetModel model;
  TRY(TomlReader toml, TomlReader::parse(text, file_name));
  toml.require("name", model.name);
  toml.require("numbers_from", model.numbers_from);
  for (size_t i = 0; i < kEntries.size(); ++i) {
    const Entry& entry = kEntries[i];
    if (!toml.require(entry.key, model.*entry.value)) continue;
    const double least = i < kDivisors ? 1 : 0;
    const double value = model.*entry.value;
    if (!std::isfinite(value) || value < least)
      toml.complain(entry.key, fmt::format("must not be below {}", least));
  }
  TRY_DO(toml.finish());
  return model;
}

}  // namespace tutti
