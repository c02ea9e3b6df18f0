// What programs ask of other workers: collectives, begun and waited for by instructions of their
// own. A rank's are over its fabric (fabric_communicator.h).
//
//   TRY_DO(communicator.start(0, {.kind = CallKind::all_reduce, …}));
//   … what does not touch its memory …
//   TRY_DO(communicator.wait(0));
//
// All workers of an axis begin the same collectives in the same order. One thread at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "fabric/call_kind.h"
#include "fabric/dtype.h"
#include "fabric/fold_tree.h"

namespace tutti {

// A sum over all lanes of the data, of which a worker has some.
struct LaneShare {
  uint32_t all = 0;  // none: each worker has one summand
  LaneRange own{};
};

struct Collective {
  CallKind kind = CallKind::barrier;
  std::string_view axis;  // of the mesh: the workers along it
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  uint64_t elements = 0;  // as of a Call (fabric/call.h)
  uint64_t output_elements = 0;
  // Of a reduction over lanes: the sums of the whole nodes of the tree among its own. Else the only
  // input.
  std::vector<const std::byte*> inputs;
  LaneShare lanes{};
  std::byte* output = nullptr;
  std::vector<uint64_t> counts;  // of reduce_scatter: elements for each worker
  std::string_view site;         // for people
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  // Of those under way each has a slot of its own.
  virtual Result<void> start(uint32_t slot, const Collective& collective) = 0;
  // Until what it makes is there; Code::unavailable when the epoch is over before that.
  virtual Result<void> wait(uint32_t slot) = 0;
};

}  // namespace tutti
