// Cross-entropy of rows of logits, and its gradient in their place.
//
// All threads call with their index; parts are independent. Every target, every number of threads
// and the reference give the same bits.
#pragma once

#include <cstdint>
#include <optional>

namespace tutti {

struct CrossEntropy {
  int64_t rows;
  int64_t vocab;
  float* logits;           // becomes (softmax - one at the target) · dloss, unless dloss is null
  int64_t row_stride;      // of logits
  const int32_t* targets;  // [rows]; below 0: not counted, its loss and gradient are zero
  const float* dloss;      // [rows], or null: only the loss is wanted, and the logits stay
  float* loss;             // [rows]
};
// The first row of this thread's part whose target is not below `vocab`, if any: its loss and
// gradient are zero.
std::optional<int64_t> cross_entropy(const CrossEntropy& given, int thread, int threads);

void cross_entropy_reference(const CrossEntropy& given);

}  // namespace tutti
