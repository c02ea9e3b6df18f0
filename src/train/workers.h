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

namespace tutti {

// The axis of the mesh along which the data are parted.
constexpr const char* kDataAxis = "dp";

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
  // Once in every epoch, by all. Code::invalid names who differs from whom.
  Result<void> compare(const std::vector<Alike>& parts);
  // Every worker's numbers side by side, by rank.
  Result<std::vector<uint64_t>> gather(const std::vector<uint64_t>& own);
  Result<std::vector<double>> gather_reals(const std::vector<double>& own);
  // Sums of what all have at each place: exact where only one has anything but zero.
  Result<void> add_up(std::vector<double>& numbers);
  // All workers' bytes one after the other, in their order.
  Result<void> gather_shards(Bytes own, MutableBytes all);
  // As they are with this worker, on all.
  Result<void> broadcast(uint32_t root, MutableBytes bytes);

  Communicator& communicator() { return *communicator_; }
  // Of this worker, for others in collectives of programs, so far.
  Duration waited() const { return communicator_ ? communicator_->waited() : Duration::zero(); }

 private:
  Fabric& fabric_;
  uint64_t met_epoch_ = 0;
  std::unique_ptr<FabricCommunicator> communicator_;
};

}  // namespace tutti
