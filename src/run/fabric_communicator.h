// The collectives of programs over groups of a rank's fabric, one for each axis.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/group.h"
#include "run/communicator.h"

namespace tutti {

class FabricCommunicator final : public Communicator {
 public:
  // As good as the epoch of its groups lasts. The clock outlives it.
  FabricCommunicator(std::map<std::string, std::shared_ptr<Group>, std::less<>> groups,
                     const Parking& clock)
      : groups_(std::move(groups)), clock_(clock) {}

  Result<void> start(uint32_t slot, const Collective& collective) override;
  Result<void> wait(uint32_t slot) override;
  // In wait(), so far: for others, and for memory to be moved.
  Duration waited() const { return waited_; }

 private:
  struct UnderWay {
    Group* group = nullptr;
    std::shared_ptr<Operation> operation;
  };

  std::map<std::string, std::shared_ptr<Group>, std::less<>> groups_;
  const Parking& clock_;
  std::vector<UnderWay> under_way_;  // by slot
  Duration waited_{};
};

}  // namespace tutti
