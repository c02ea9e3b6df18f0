#include "train/worker_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti {
namespace {

constexpr std::array<std::pair<std::string_view, ShardedState>, 3> kDataAxes = {{
    {kDataAxis, ShardedState::none},
    {"zero1", ShardedState::moments},
    {"fsdp", ShardedState::all},
}};

bool shares_data(std::string_view axis) {
  return std::ranges::count(kDataAxes, axis, &std::pair<std::string_view, ShardedState>::first) !=
         0;
}

}  // namespace

Result<WorkerMesh> WorkerMesh::make(std::string_view mesh, std::string_view rules,
                                    uint32_t workers) {
  WorkerMesh made;
  TRY(made.all_, mesh.empty() ? ShardMesh::make({{kDataAxis, workers}}) : ShardMesh::parse(mesh));
  TRY_DO(made.all_.check_workers(workers));
  std::vector<ShardAxis> others;
  for (const ShardAxis& axis : made.all_.axes()) {
    if (!shares_data(axis.name)) {
      others.push_back(axis);
    } else if (made.data_workers() > 1 && axis.size > 1 && axis.name != made.data_) {
      return fail(
          Code::unsupported,
          "mesh {}: workers share the data along {} and along {}, and can along one axis so "
          "far: {}={}",
          mesh, made.data_, axis.name, axis.name, made.data_workers() * axis.size);
    } else if (made.data_workers() == 1) {
      made.data_ = axis.name;
    }
  }
  TRY(made.model_, ShardMesh::make(std::move(others)));
  TRY(made.users_rules_, parse_rules(rules, made.model_));
  made.rules_ = joined_rules(made.users_rules_, preset_rules(made.model_));
  for (const ShardAxis& axis : made.model_.axes())
    if (std::ranges::none_of(made.rules_, [&](const ShardRule& rule) {
          return std::ranges::count(rule.axes, axis.name) != 0;
        }))
      return fail(Code::invalid,
                  "mesh {}: nothing is split along {}; axes that need no rule are dp, zero1, fsdp "
                  "and tp, for others say what they split: --rules=vocab={}",
                  mesh, axis.name, axis.name);
  return made;
}

uint32_t WorkerMesh::data_worker(uint32_t rank) const {
  return static_cast<uint32_t>(all_.coordinate(rank, data_));
}

ShardedState WorkerMesh::state() const {
  return std::ranges::find(kDataAxes, data_, &std::pair<std::string_view, ShardedState>::first)
      ->second;
}

int64_t WorkerMesh::model_rank(uint32_t rank) const {
  std::vector<int64_t> coordinates;
  for (const ShardAxis& axis : model_.axes())
    coordinates.push_back(all_.coordinate(rank, axis.name));
  return model_.rank_at(coordinates);
}

std::vector<uint32_t> WorkerMesh::with_same_samples(uint32_t rank) const {
  std::vector<uint32_t> all;
  for (uint32_t other = 0; other < static_cast<uint32_t>(all_.ranks()); ++other)
    if (data_worker(other) == data_worker(rank)) all.push_back(other);
  return all;
}

std::vector<uint32_t> WorkerMesh::along(uint32_t rank, std::string_view axis) const {
  std::vector<uint32_t> all;
  for (const int64_t other : all_.group(rank, axis)) all.push_back(static_cast<uint32_t>(other));
  return all;
}

}  // namespace tutti
