// How a step becomes part of the state, so that a process may be killed at any store and its
// successor goes on without a bit of difference. docs/fabric.md has the argument.
//
// A rank's state is weights with two moments. To apply a gradient is idempotent only as a whole, so
// it is done chunk by chunk, and a word says how far it is. Moments slide: they have room for one
// chunk more than they need, and the new chunk is written where the chunk before it was, whose
// values are no longer needed; the next step slides back. No old value is overwritten before its
// new one is whole. Weights stay where they are, since everybody points at them: their chunk is
// copied to an undo record first.
//
// The protocol is written over a Store, which makes every write. DirectStore makes it in memory; a
// test records it and recovers from every prefix.
#pragma once

#include <algorithm>
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
  std::atomic<uint64_t> progress;   // while decided > committed: 2k, or 2k + 1 with undo of chunk k
};

struct StepState {
  StepWords* words = nullptr;
  float* weights = nullptr;
  float* undo = nullptr;   // a chunk
  float* first = nullptr;  // elements + a chunk, as `second`
  float* second = nullptr;
  const float* gradient = nullptr;
  uint64_t elements = 0;
  uint64_t chunk = 4096;  // elements

  uint64_t chunks() const { return (elements + chunk - 1) / chunk; }
  // Where a moment begins at this step.
  uint64_t slid(uint64_t step) const { return step % 2 == 0 ? chunk : 0; }
};

// Writes at once. A killed process leaves a prefix of its stores; the compiler must keep their
// order.
class DirectStore {
 public:
  void copy(float* to, const float* from, uint64_t elements) {
    std::memcpy(to, from, elements * sizeof(float));
  }
  void update(const AdamWStep& step, const AdamWArrays& arrays) { adamw_update(step, arrays); }
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
  const uint64_t from = state.slid(now);
  const uint64_t to = state.slid(now + 1);
  const uint64_t chunks = state.chunks();
  const auto begin_of = [&](uint64_t k) {
    return (to < from ? k : chunks - 1 - k) * state.chunk;  // away from the room that is free
  };
  const auto length_at = [&](uint64_t begin) {
    return std::min(state.chunk, state.elements - begin);
  };
  uint64_t progress = words.progress.load();
  if (progress % 2 == 1) {
    const uint64_t begin = begin_of(progress / 2);
    store.copy(state.weights + begin, state.undo, length_at(begin));
    store.publish(words.progress, --progress);
  }
  for (uint64_t k = progress / 2; k < chunks; ++k) {
    const uint64_t begin = begin_of(k);
    const uint64_t length = length_at(begin);
    store.copy(state.undo, state.weights + begin, length);
    store.publish(words.progress, 2 * k + 1);
    store.update(step, {.weights_out = state.weights + begin,
                        .first_out = state.first + to + begin,
                        .second_out = state.second + to + begin,
                        .weights = state.weights + begin,
                        .first = state.first + from + begin,
                        .second = state.second + from + begin,
                        .gradient = state.gradient + begin,
                        .elements = length});
    store.publish(words.progress, 2 * k + 2);
  }
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
