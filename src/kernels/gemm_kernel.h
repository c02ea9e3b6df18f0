// What the files of the matrix product share: the part of one thread, and the kernels that do it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/gemm.h"

namespace tutti {

// The rows and columns of C that one thread computes.
struct GemmPart {
  int64_t first_row;
  int64_t end_row;
  int64_t first_column;
  int64_t end_column;
};

struct GemmKernel {
  const char* name;
  int tile_columns;  // parts begin at multiples of it, where they can
  void (*run)(const Gemm& gemm, const GemmPart& part, std::byte* workspace);
  size_t (*workspace_bytes)(const Gemm& gemm);
};

// For processors without vectors of fused multiply-adds: the definition, part by part.
extern const GemmKernel kGemmPortable;

// Those with vectors that this processor can run, the fastest last.
std::span<const GemmKernel* const> gemm_vector_kernels();

inline void finish_block(const GemmEdge& edge, const GemmPart& block) {
  if (edge.finish != nullptr)
    edge.finish(edge.parameters, block.first_row, block.end_row, block.first_column,
                block.end_column);
}

// `total` in pieces as even as multiples of `unit` allow, none above `most`: the size of a piece.
inline int64_t even_piece(int64_t total, int64_t most, int64_t unit) {
  const int64_t pieces = std::max<int64_t>(1, (total + most - 1) / most);
  const int64_t piece = (total + pieces - 1) / pieces;
  return (piece + unit - 1) / unit * unit;
}

}  // namespace tutti
