// Matrix products in fp32: C = A · B, or C += A · B, with what follows fused to their edge.
//
// Every element of C is one chain of fused multiply-adds in the order of k, begun with C or zero.
// So its bits are the same for every tile, blocking, number of threads and processor, and those of
// the reference; only which NaN a NaN is may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/share.h"

namespace tutti {

// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride]. Fast when one of
// the strides is 1.
struct MatrixView {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};

// Called once for every block of C that holds its final sums, while the block is in the cache:
// bias, activation, residual and the like. `parameters` are its own.
struct GemmEdge {
  void (*finish)(void* const* parameters, long first_row, long end_row, long first_column,
                 long end_column) = nullptr;
  void* const* parameters = nullptr;
};

// C is m × n, A is m × k, B is k × n. C overlaps neither.
struct Gemm {
  int64_t m;
  int64_t n;
  int64_t k;
  MatrixView a;
  MatrixView b;
  float* c;
  int64_t c_row_stride;     // rows of C are contiguous
  bool accumulate = false;  // C is the first term of every sum
  GemmEdge edge;
  const float* panel = nullptr;  // B, packed before (gemm_panel.h); b is there as well
  int threads = 1;               // that multiply together
};

// One of the threads that multiply together, in one of the phases that the product has. After each
// phase they meet.
struct GemmCall {
  int phase;
  int thread;
  Turns* turns;  // of all threads in this phase, from the first
  std::byte* shared;
  std::byte* workspace;  // its own
};

int gemm_phases(const Gemm& gemm);
// What all threads need together, and what each does, however many there are.
size_t gemm_shared_bytes(const Gemm& gemm);
size_t gemm_workspace_bytes(const Gemm& gemm);

// What this thread does in this phase. Nobody waits inside.
void gemm(const Gemm& gemm, const GemmCall& call);

// The same bits, by the definition.
void gemm_reference(const Gemm& gemm);

// For tests: the kernels this processor can run, by name, the fastest last, and choosing one.
std::span<const char* const> gemm_kernels();
void use_gemm_kernel(const char* name);

}  // namespace tutti
