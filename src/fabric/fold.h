// Reduces arrays element by element, in the order of a FoldTree, at the speed of memory.
//
// Halves (bf16, f16) are widened, joined as f32 and rounded once, to nearest even, at the end. All
// kernels give the same bits; the fastest that the processor has is chosen at run time.
#pragma once

#include <cstddef>
#include <span>

#include "fabric/dtype.h"
#include "fabric/fold_tree.h"

namespace tutti {

struct FoldWork {
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  uint32_t divisor = 1;  // of a mean
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> targets;  // each gets the result; may be sources, else disjoint
  uint64_t elements = 0;
  bool streaming = false;  // past the caches: the targets are large and will not be read soon
  bool widened = false;    // of halves: the targets are f32, to be joined with others
};

void fold(const FoldTree& tree, const FoldWork& work);

// Rounds what was widened.
void narrow_halves(DType half, std::byte* to, const float* from, uint64_t elements);

// Copies past the caches when `streaming`; else as is fastest for what is in them.
void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes, bool streaming);

// As many rows of so many bytes, the first bytes of which are a stride apart.
struct RowCopy {
  uint64_t bytes = 0;
  uint64_t rows = 1;
  uint64_t to_stride = 0;
  uint64_t from_stride = 0;
};
void copy_rows(std::byte* to, const std::byte* from, const RowCopy& rows, bool streaming);

// For tests: the kernels this processor can run, by name, and choosing one of them.
std::span<const char* const> fold_kernels();
void use_fold_kernel(const char* name);

}  // namespace tutti
