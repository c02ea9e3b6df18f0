// How a step becomes part of the state, so that a process may be killed at any store and its
// successor goes on without a bit of difference. docs/fabric.md has the argument.
//
// A rank's state is weights with two moments. To apply a gradient is idempotent only as a whole, so
// it is done block by block, and a word says how far it is. Moments slide: they have room for one
// block more than they need, and the new block is written where the block before it was, whose
// values are no longer needed; the next step slides back. No old value is overwritten before its
// new one is whole. Weights stay where they are, since everybody points at them: their block is
// copied to an undo record first. There are two of these, in turns, so that one word per block is
// enough.
//
// The protocol is written over a Store, which makes every write. DirectStore makes it in memory; a
// test records it and recovers from every prefix, and another kills the kernels at every
// instruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/result.h"
#include "kernels/adamw.h"

namespace tutti {

// In the vault; only their rank writes them. A step number is how many steps were done.
struct StepWords {
  std::atomic<uint64_t> born;       // not 0: the state of step 0 is whole
  std::atomic<uint64_t> ready;      // the reduced gradient towards this step is whole
  std::atomic<uint64_t> decided;    // all ranks were ready: this step will be, whatever happens
  std::atomic<uint64_t> committed;  // the state is that of this step
  std::atomic<uint64_t> progress;  // while decided > committed: k + 1 once block k is in its record
};

struct StepState {
  StepWords* words = nullptr;
  float* weights = nullptr;
  float* undo = nullptr;   // two blocks
  float* first = nullptr;  // elements + a block, as `second`
  float* second = nullptr;
  const float* gradient = nullptr;
  uint64_t elements = 0;  // at least one

  // Where a moment begins at this step.
  static uint64_t slid(uint64_t step) { return step % 2 == 0 ? kAdamWBlock : 0; }
};

// Writes at once. A killed process leaves a prefix of its stores; the compiler must keep their
// order.
class DirectStore {
 public:
  void copy(float* to, const float* from, uint64_t elements) {
    std::memcpy(to, from, elements * sizeof(float));
  }
  void update(const AdamWStep& step, const AdamWArrays& arrays, const AdamWUndo& undo) {
    adamw_update_undoable(step, arrays, undo);
  }
  void publish(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
};

// Says that the gradient is whole, and then that all ranks' are.
template <class Store>
void say_ready(Store& store, StepState& state) {
  store.publish(state.words->ready, state.words->committed.load() + 1);
}
template <class Store>
void say_decided(Store& store, StepState& state) {
  store.publish(state.words->progress, 0);
  store.publish(state.words->decided, state.words->committed.load() + 1);
}

// Applies the gradient of a decided step, from wherever the one before us was killed.
template <class Store>
void commit(Store& store, StepState& state, const AdamWStep& step) {
  StepWords& words = *state.words;
  const uint64_t now = words.committed.load();
  const uint64_t from = StepState::slid(now);
  const uint64_t to = StepState::slid(now + 1);
  AdamWUndo undo{.records = state.undo, .begun = &words.progress, .first = 0, .down = to > from};
  if (const uint64_t begun = words.progress.load(); begun != 0) {
    undo.first = begun - 1;
    const AdamWBlock torn = adamw_block(state.elements, undo.first, undo.down);
    store.copy(state.weights + torn.begin, state.undo + undo.first % 2 * kAdamWBlock, torn.length);
  }
  store.update(step,
               {.weights_out = state.weights,
                .first_out = state.first + to,
                .second_out = state.second + to,
                .weights = state.weights,
                .first = state.first + from,
                .second = state.second + from,
                .gradient = state.gradient,
                .elements = state.elements},
               undo);
  store.publish(words.committed, now + 1);
}

// What a rank's words say; as they are told to the others.
struct StepReport {
  uint64_t born = 0;
  uint64_t ready = 0;
  uint64_t decided = 0;
  uint64_t committed = 0;
};
StepReport report_of(const StepWords& words);

// The step that all ranks go on from, after ranks died. Who is behind it commits what it has;
// nobody goes back. Code::not_found when some have no state and others do: what was not shared was
// lost.
Result<uint64_t> step_after_loss(std::span<const StepReport> ranks);

}  // namespace tutti
