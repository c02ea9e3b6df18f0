// One rank's replica of a model under data-parallel AdamW, in its vault: weights, moments, the
// reduced gradient and how far the step is. The ranks of a group take a step together by the
// protocol of commit.h; after a death, recover() brings all to the same step, and none is lost.
//
//   replica.gradient() = …;                        // local, in scratch
//   auto done = replica.step_with(group, options);  // reduce, decide, commit
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/group.h"
#include "train/commit.h"
#include "train/vault.h"

namespace tutti {

struct ReplicaOptions {
  std::string name = "replica";
  uint64_t elements = 0;  // of all weights together
  // What they are, in words that end in ';' each: "w [784, 10]; b [10];". Kept in the vault, and
  // the same for all who open it.
  std::string form;
  AdamW adamw;
  double max_norm = 0;  // gradients are scaled down to it; 0: never
};

class Replica {
 public:
  static Result<std::unique_ptr<Replica>> open(Fabric& fabric, Vault& vault,
                                               ReplicaOptions options);

  // Whether the state of step 0 is there: else write the weights, alike on all ranks, and then say
  // so. The first call of an epoch compares them: Code::invalid where they differ.
  bool born() const { return state_.words->born.load() != 0; }
  void set_born();
  uint64_t step() const { return state_.words->committed.load(); }
  std::span<float> weights() const { return {state_.weights, options_.elements}; }
  // The moments, where they are at this step.
  std::span<const float> first_moment() const;
  std::span<const float> second_moment() const;
  // What this rank adds to the step: its own gradient, the mean of which over lanes is applied.
  std::span<float> gradient() const { return {local_, options_.elements}; }
  double last_norm() const { return norm_; }
  void set_learning_rate(double rate) { options_.adamw.learning_rate = rate; }

  // A step together with all of the group. Code::unavailable when a rank died: join, then recover.
  Result<void> step_with(Group& group);
  // With the next epoch's group: goes on to the step that was decided, if one was. Gives the step.
  Result<uint64_t> recover(Group& group);
  // XXH3 of weights and moments.
  uint64_t digest() const;

 private:
  // What all ranks must have alike; in the vault, written before the replica is born.
  struct Birth {
    uint64_t form = 0;     // hashes
    uint64_t weights = 0;  // of step 0
  };
  explicit Replica(ReplicaOptions options) : options_(std::move(options)) {}
  Result<float*> keep(Vault& vault, const char* what, uint64_t elements);
  Result<void> keep_form(Vault& vault);
  Result<void> check_alike(Group& group);
  Result<double> meet_for_norm(Group& group);
  double whole_norm() const;
  void commit_with(double norm);

  Fabric* fabric_ = nullptr;
  ReplicaOptions options_;
  Birth* birth_ = nullptr;
  std::optional<uint64_t> compared_epoch_;  // in which all were seen to be alike
  StepState state_;
  float* reduced_ = nullptr;
  float* local_ = nullptr;
  double norm_ = 0;
};

}  // namespace tutti
