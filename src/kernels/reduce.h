// Sums of long arrays in one order, whoever computes them: chunks of 4,096 elements, sixteen lanes
// within a chunk (scalar.h), chunks joined by the tree of fabric/fold_tree.h in index order.
//
// Two phases, with a barrier of the caller's between them. All threads call the first with their
// index; parts are independent. Every target, every number of threads and the reference give the
// same bits.
#pragma once

#include <cstdint>

namespace tutti {

constexpr int64_t kReduceChunk = 4096;

constexpr int64_t reduce_chunks(int64_t elements) {
  return (elements + kReduceChunk - 1) / kReduceChunk;
}

// First: sums[reduce_chunks(elements)].
void sum_chunks(const float* x, int64_t elements, float* sums, int thread, int threads);
void sum_square_chunks(const float* x, int64_t elements, float* sums, int thread, int threads);
// Then one thread: their sum. Chunks of several arrays, one after another, join as well. Uses up
// the sums; zero when there are none.
float join_chunks(float* sums, int64_t chunks);

// out[c] = the sum of x[row][c] over the rows, in the order of row_groups.h.
struct SumRows {
  int64_t rows;
  int64_t columns;
  const float* x;
  int64_t row_stride;
  float* out;
  float* group_sums;  // between the phases: [row_groups(rows)][columns], shared by the threads
};
void sum_rows(const SumRows& given, int thread, int threads);       // first
void sum_rows_join(const SumRows& given, int thread, int threads);  // then

float sum_reference(const float* x, int64_t elements);
float sum_squares_reference(const float* x, int64_t elements);
void sum_rows_reference(const SumRows& given);

}  // namespace tutti
