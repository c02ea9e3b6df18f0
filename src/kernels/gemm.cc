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
    .phases = [](const Gemm& /*gemm*/) { return 1; },
    .shared_bytes = [](const Gemm& /*gemm*/) -> size_t { return 0; },
    .workspace_bytes = [](const Gemm& /*gemm*/) -> size_t { return 0; },
    .run =
        [](const Gemm& gemm, const GemmCall& call) {
          const GemmPart part = part_of(gemm, call, 1);
          if (!is_empty(part)) run_by_definition(gemm, part);
        },
    .panel_bytes = [](int64_t /*n*/, int64_t /*k*/) -> size_t { return 0; },
    .pack_panel = [](const GemmPanel& /*panel*/, const GemmPanelPart& /*part*/) {}};

int gemm_phases(const Gemm& gemm) { return kernel().phases(gemm); }
size_t gemm_shared_bytes(const Gemm& gemm) { return kernel().shared_bytes(gemm); }
size_t gemm_workspace_bytes(const Gemm& gemm) { return kernel().workspace_bytes(gemm); }

void gemm(const Gemm& gemm, const GemmCall& call) {
  TUTTI_ASSERT(0 <= call.thread && call.thread < gemm.threads, "threads are counted from 0");
  kernel().run(gemm, call);
}

size_t gemm_panel_bytes(int64_t n, int64_t k) { return kernel().panel_bytes(n, k); }

void gemm_pack_panel(const GemmPanel& panel, const GemmPanelPart& part) {
  TUTTI_ASSERT(part.first_column % kPanelColumns == 0, "parts of panels are whole strips");
  TUTTI_ASSERT(part.end_k <= panel.k && part.end_column <= panel.n, "parts are within a panel");
  kernel().pack_panel(panel, part);
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
