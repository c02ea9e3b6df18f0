#include "kernels/gemm.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "kernels/gemm_kernel.h"

namespace tutti {

namespace {

// Ascending: the last is the fastest.
std::span<const GemmKernel* const> kernels() {
  static const auto runnable = [] {
    std::vector<const GemmKernel*> found{&kGemmPortable};
    for (const GemmKernel* each : gemm_vector_kernels()) found.push_back(each);
    return found;
  }();
  return runnable;
}

std::atomic<const GemmKernel*> chosen = nullptr;

const GemmKernel& kernel() {
  const GemmKernel* now = chosen.load(std::memory_order_relaxed);
  return now != nullptr ? *now : *kernels().back();
}

// The larger side is shared, so that the smaller one is packed as seldom as possible.
GemmPart part_of(const Gemm& gemm, int thread, int threads, int tile_columns) {
  GemmPart part{0, gemm.m, 0, gemm.n};
  const auto cut = [&](int64_t size, int64_t unit, int at) {
    const int64_t units = (size + unit - 1) / unit;
    return std::min(size, units * at / threads * unit);
  };
  if (gemm.n >= gemm.m) {
    part.first_column = cut(gemm.n, tile_columns, thread);
    part.end_column = cut(gemm.n, tile_columns, thread + 1);
  } else {
    part.first_row = cut(gemm.m, 1, thread);
    part.end_row = cut(gemm.m, 1, thread + 1);
  }
  return part;
}

void run_by_definition(const Gemm& gemm, const GemmPart& part) {
  for (int64_t i = part.first_row; i < part.end_row; ++i) {
    for (int64_t j = part.first_column; j < part.end_column; ++j) {
      float& c = gemm.c[i * gemm.c_row_stride + j];
      const float* a = gemm.a.data + i * gemm.a.row_stride;
      const float* b = gemm.b.data + j * gemm.b.column_stride;
      float sum = gemm.accumulate ? c : 0.0F;
      for (int64_t k = 0; k < gemm.k; ++k)
        sum = std::fma(a[k * gemm.a.column_stride], b[k * gemm.b.row_stride], sum);
      c = sum;
    }
  }
  finish_block(gemm.edge, part);
}

}  // namespace

const GemmKernel kGemmPortable = {
    .name = "portable",
    .tile_columns = 1,
    .run = [](const Gemm& gemm, const GemmPart& part,
              std::byte* /*workspace*/) { run_by_definition(gemm, part); },
    .workspace_bytes = [](const Gemm& /*gemm*/) -> size_t { return 0; }};

size_t gemm_workspace_bytes(const Gemm& gemm) { return kernel().workspace_bytes(gemm); }

void gemm(const Gemm& gemm, int thread, int threads, std::byte* workspace) {
  TUTTI_ASSERT(0 <= thread && thread < threads, "threads are counted from 0");
  const GemmKernel& now = kernel();
  const GemmPart part = part_of(gemm, thread, threads, now.tile_columns);
  if (part.first_row < part.end_row && part.first_column < part.end_column)
    now.run(gemm, part, workspace);
}

void gemm_reference(const Gemm& gemm) {
  if (gemm.m > 0 && gemm.n > 0) run_by_definition(gemm, {0, gemm.m, 0, gemm.n});
}

std::span<const char* const> gemm_kernels() {
  static const auto names = [] {
    std::vector<const char*> all;
    for (const GemmKernel* each : kernels()) all.push_back(each->name);
    return all;
  }();
  return names;
}

void use_gemm_kernel(const char* name) {
  for (const GemmKernel* each : kernels())
    if (std::strcmp(each->name, name) == 0) return chosen.store(each);
  TUTTI_ASSERT(false, "only kernels of gemm_kernels() can be used");
}

}  // namespace tutti
