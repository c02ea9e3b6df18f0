// AdamW, element by element. Every kernel gives the same bits: no contraction, and the same order
// of operations; the fastest that the processor has is chosen at run time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// What the elements of one step have in common, rounded once.
struct AdamWStep {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;           // learning rate, corrected for the bias of the first moment
  float root_of_correction;  // of the bias of the second moment
  float epsilon;
  float decay;  // of weights: 1 - learning rate × weight decay
  float gradient_scale;
};

// `step` counts from 1. Gradients are multiplied by `gradient_scale` first: 1, or what clips them.
AdamWStep adamw_step(const AdamW& options, uint64_t step, float gradient_scale = 1);

// Outputs may be the inputs, or elsewhere.
struct AdamWArrays {
  float* weights_out;
  float* first_out;
  float* second_out;
  const float* weights;
  const float* first;
  const float* second;
  const float* gradient;
  size_t elements;
};
void adamw_update(const AdamWStep& step, const AdamWArrays& arrays);

// The same, block after block, for a process that may be killed at any instruction. Before weights
// of block k are written, the old ones are in record k % 2, and `begun` is k + 1. Whoever restores
// that block goes on from it.
struct AdamWUndo {
  float* records;  // of two blocks
  std::atomic<uint64_t>* begun;
  uint64_t first;  // block
  bool down;       // the last block of the arrays is block 0
};
void adamw_update_undoable(const AdamWStep& step, const AdamWArrays& arrays, const AdamWUndo& undo);

// So few that copying hides behind the arithmetic, and that everything of two blocks is in the
// nearest cache; twice as many as the widest vectors have, since reading half of what was just
// stored stalls.
inline constexpr uint64_t kAdamWBlock = 32;

struct AdamWBlock {
  uint64_t begin;
  uint64_t length;
};
inline AdamWBlock adamw_block(uint64_t elements, uint64_t k, bool down) {
  const uint64_t blocks = (elements + kAdamWBlock - 1) / kAdamWBlock;
  const uint64_t begin = (down ? blocks - 1 - k : k) * kAdamWBlock;
  return {begin, std::min(kAdamWBlock, elements - begin)};
}

// The same for threads that may be killed together, and go on together, however many there are then
// and whoever has which block. Each has a record: of the block under way the old values, and how
// far from the record their places are, since memory lies elsewhere in every process. A block that
// is done is marked with the step; who finds a record of one that is not restores it.
inline constexpr int64_t kMarkedBlock = 64;

struct alignas(64) AdamWRecord {
  int64_t block;  // 1 + which one, when its old values are whole
  int64_t step;
  int64_t first_block;  // of the arrays, and where these are
  int64_t elements;
  int64_t places[3];
  float old[3][kMarkedBlock];
};
struct AdamWMarks {
  AdamWRecord* record;
  uint32_t* done;       // of all blocks
  int64_t first_block;  // of the arrays
  uint32_t step;
};
void adamw_update_marked(const AdamWStep& step, const AdamWArrays& arrays, const AdamWMarks& marks);
// Whether there was something to restore; it is when this returns.
bool adamw_restore(AdamWRecord& record, const uint32_t* done, uint32_t step);

// For tests: the kernels this processor can run, by name, and choosing one of them.
std::span<const char* const> adamw_kernels();
void use_adamw_kernel(const char* name);

}  // namespace tutti
