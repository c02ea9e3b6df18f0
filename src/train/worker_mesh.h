// How the workers that train one model are arranged: along one axis of a mesh they share the
// samples of a step, along all others the work on each sample, which rules divide
// (compile/shard/rules.h).
//
// A value without any reach.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/shard/mesh.h"
#include "compile/shard/rules.h"
#include "train/shards.h"

namespace tutti {

class WorkerMesh {
 public:
  WorkerMesh() = default;  // one worker
  // "dp=2,tp=2" of so many workers, who all share the data if it is not said; and rules before
  // those that axes bring by their names.
  static Result<WorkerMesh> make(std::string_view mesh, std::string_view rules, uint32_t workers);

  // Whose samples are whose, and what each keeps of the model.
  uint32_t data_workers() const { return static_cast<uint32_t>(all_.size_of(data_)); }
  uint32_t data_worker(uint32_t rank) const;
  ShardedState state() const;

  // The axes that divide each sample's work; the rank's place along them.
  const ShardMesh& model() const { return model_; }
  int64_t model_rank(uint32_t rank) const;
  const ShardRules& rules() const { return rules_; }
  const ShardRules& users_rules() const { return users_rules_; }

  // Ranks with this one among them, in their order: that work on the same samples; that have the
  // same part of the model, and other samples; that differ along one axis only.
  std::vector<uint32_t> with_same_samples(uint32_t rank) const;
  std::vector<uint32_t> with_same_part(uint32_t rank) const { return along(rank, data_); }
  std::vector<uint32_t> along(uint32_t rank, std::string_view axis) const;

 private:
  ShardMesh all_;
  ShardMesh model_;
  std::string data_ = kDataAxis;
  ShardRules rules_;
  ShardRules users_rules_;
};

}  // namespace tutti
