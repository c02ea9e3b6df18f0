// The next step's data are made while this one is computed. How long a step waited for its data is
// recorded: it should be nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "run/epoch_watch.h"
#include "train/batch_source.h"
#include "world/helper.h"
#include "world/parking.h"

namespace tutti {

class Prefetch {
 public:
  // The inputs' memory is its own; two of each, which steps use in turns. All must outlive it.
  Prefetch(BatchSource& source, Helper& helper, const Parking& clock,
           const std::vector<BatchTensor>& inputs);
  ~Prefetch() { helper_.wait(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // The data of the step that comes after so many, good until the next call, when those of the step
  // after it are begun as well. Waits while the epoch lasts, then gives up: aborted(epoch).
  Result<const std::vector<BatchTensor>*> take(uint64_t steps_done, const EpochWatch& epoch);
  Duration waited() const { return waited_; }  // at the last take()

 private:
  struct Side {
    std::vector<BatchTensor> inputs;
    std::vector<std::unique_ptr<std::byte[]>> memory;
    std::optional<uint64_t> step;  // whose data are there, or are being made
    Result<void> made;
  };
  void begin(Side& side, uint64_t step);
  Result<void> wait(const EpochWatch& epoch);

  BatchSource& source_;
  Helper& helper_;
  const Parking& clock_;
  Side sides_[2];
  size_t next_ = 0;  // the side that is being filled, or was
  Duration waited_{};
};

}  // namespace tutti
