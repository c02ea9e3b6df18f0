#include "train/prefetch.h"

namespace tutti {
namespace {

// So much later than told at most does a wait end with its epoch; waking so often costs nothing.
constexpr Duration kLookEvery = 5ms;

}  // namespace

Prefetch::Prefetch(BatchSource& source, Helper& helper, const Parking& clock,
                   const std::vector<BatchTensor>& inputs)
    : source_(source), helper_(helper), clock_(clock) {
  for (Side& side : sides_) {
    side.inputs = inputs;
    for (BatchTensor& input : side.inputs) {
      side.memory.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(input.type.bytes())));
      input.data = side.memory.back().get();
    }
  }
}

void Prefetch::begin(Side& side, uint64_t step) {
  side.step = step;
  helper_.start([this, &side, step] { side.made = source_.fill(step, side.inputs); });
}

// What is being made when the epoch ends is made all the same, for whoever asks next.
Result<void> Prefetch::wait(const EpochWatch& epoch) {
  while (!helper_.wait_for(kLookEvery))
    if (epoch.over()) return fail(epoch.aborted());
  return {};
}

Result<const std::vector<BatchTensor>*> Prefetch::take(uint64_t steps_done,
                                                       const EpochWatch& epoch) {
  const Instant start = clock_.now();
  TRY_DO(wait(epoch));
  Side& side = sides_[next_];
  if (side.step != steps_done) {  // the first, or somebody went elsewhere
    begin(side, steps_done);
    TRY_DO(wait(epoch));
  }
  waited_ = clock_.now() - start;
  if (!side.made) {
    side.step.reset();
    return fail(side.made.error());
  }
  next_ = 1 - next_;
  begin(sides_[next_], steps_done + 1);
  return &side.inputs;
}

}  // namespace tutti
