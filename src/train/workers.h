// The workers that train one model together, as one of them sees them: the ranks of its gang.
//
// In every epoch all of them meet before anything else. What they were started with is compared,
// part by part, and who differs is named, before a step is made of it.
//
// One thread, the trainer's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/group.h"
#include "run/epoch_watch.h"
#include "run/fabric_communicator.h"
#include "train/worker_mesh.h"

namespace tutti {

// What has to be alike for all, in words for whom it is not: "another model".
struct Alike {
  std::string what;
  uint64_t hash = 0;
};

class Workers {
 public:
  // Which outlives it, and takes part in an epoch.
  explicit Workers(Fabric& fabric) : fabric_(fabric) {}

  uint32_t rank() const { return fabric_.rank(); }
  uint32_t size() const { return fabric_.world_size(); }
  Fabric& fabric() { return fabric_; }

  // Takes part in the present epoch, or the next when that is over.
  Result<void> enter(EpochWatch& epoch, Duration timeout);
  // Once in every epoch, by all, when they know that all have this mesh.
  Result<void> arrange(const WorkerMesh& mesh);
  // By all. Code::invalid names who differs from whom; of those only who have the same `part` of
  // the model.
  Result<void> compare(const std::vector<Alike>& parts, uint64_t part = 0);
  // Every worker's numbers side by side, by rank.
  Result<std::vector<uint64_t>> gather(const std::vector<uint64_t>& own);
  Result<std::vector<double>> gather_reals(const std::vector<double>& own);
  // The following are among some of them, once they are arranged.
  // Sums of what those with other samples have at each place: exact where only one has anything but
  // zero.
  Result<void> add_up(std::vector<double>& numbers);
  // The bytes of those with the same part of the model one after the other, in their order.
  Result<void> gather_shards(Bytes own, MutableBytes all);
  // The bytes of those with the same samples, likewise.
  Result<void> gather_parts(Bytes own, MutableBytes all);
  // As they are with this rank, on all with the same part of the model.
  Result<void> broadcast(uint32_t rank, MutableBytes bytes);

  Communicator& communicator() { return *communicator_; }
  // Of this worker, for others in collectives of programs, so far.
  Duration waited() const { return communicator_ ? communicator_->waited() : Duration::zero(); }

 private:
  Result<std::shared_ptr<Group>> group(std::vector<uint32_t> ranks, std::string name);

  Fabric& fabric_;
  std::shared_ptr<Group> same_part_;
  std::shared_ptr<Group> same_samples_;
  std::unique_ptr<FabricCommunicator> communicator_;
};

}  // namespace tutti
