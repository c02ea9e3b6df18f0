// What the files of the matrix product share: the part of one thread, and the kernels that do it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/gemm.h"
#include "kernels/gemm_panel.h"

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
  int (*phases)(const Gemm& gemm);
  size_t (*shared_bytes)(const Gemm& gemm);
  size_t (*workspace_bytes)(const Gemm& gemm);
  void (*run)(const Gemm& gemm, const GemmCall& call);
  size_t (*panel_bytes)(int64_t n, int64_t k);
  void (*pack_panel)(const GemmPanel& panel, const GemmPanelPart& part);
};

// The part of a thread when nothing is shared. The larger side is cut, at multiples of
// `tile_columns` if it is that of columns, so that the smaller one is packed as seldom as possible.
inline GemmPart part_of(const Gemm& gemm, const GemmCall& call, int64_t tile_columns) {
  GemmPart part{0, gemm.m, 0, gemm.n};
  if (gemm.n >= gemm.m) {
    const Part columns = part_of(gemm.n, call.thread, gemm.threads, tile_columns);
    part.first_column = columns.first;
    part.end_column = columns.end;
  } else {
    const Part rows = part_of(gemm.m, call.thread, gemm.threads);
    part.first_row = rows.first;
    part.end_row = rows.end;
  }
  return part;
}

inline bool is_empty(const GemmPart& part) {
  return part.first_row >= part.end_row || part.first_column >= part.end_column;
}

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
