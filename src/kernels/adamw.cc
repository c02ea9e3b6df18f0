#include "kernels/adamw.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "kernels/adamw_kernel.h"

namespace tutti {

namespace {

// Ascending: the last is the fastest.
std::span<const AdamWKernel* const> kernels() {
  static const auto runnable = [] {
    std::vector<const AdamWKernel*> found{&kAdamWSse2};
    if (__builtin_cpu_supports("avx2")) found.push_back(&kAdamWAvx2);
    if (__builtin_cpu_supports("avx512f")) found.push_back(&kAdamWAvx512);
    return found;
  }();
  return runnable;
}

std::atomic<const AdamWKernel*> chosen = nullptr;

const AdamWKernel& best() {
  const AdamWKernel* now = chosen.load(std::memory_order_relaxed);
  return now != nullptr ? *now : *kernels().back();
}

}  // namespace

AdamWStep adamw_step(const AdamW& options, uint64_t step, float gradient_scale) {
  const auto count = static_cast<double>(step);
  const double first_correction = 1 - std::pow(options.beta1, count);
  const double second_correction = 1 - std::pow(options.beta2, count);
  return {.beta1 = static_cast<float>(options.beta1),
          .one_minus_beta1 = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .one_minus_beta2 = static_cast<float>(1 - options.beta2),
          .step_size = static_cast<float>(options.learning_rate / first_correction),
          .root_of_correction = static_cast<float>(std::sqrt(second_correction)),
          .epsilon = static_cast<float>(options.epsilon),
          .decay = static_cast<float>(1 - options.learning_rate * options.weight_decay),
          .gradient_scale = gradient_scale};
}

void adamw_update(const AdamWStep& step, const AdamWArrays& arrays) { best().update(step, arrays); }

void adamw_update_undoable(const AdamWStep& step, const AdamWArrays& arrays,
                           const AdamWUndo& undo) {
  best().update_undoable(step, arrays, undo);
}

std::span<const char* const> adamw_kernels() {
  static const auto names = [] {
    std::vector<const char*> all;
    for (const AdamWKernel* each : kernels()) all.push_back(each->name);
    return all;
  }();
  return names;
}

void use_adamw_kernel(const char* name) {
  for (const AdamWKernel* each : kernels())
    if (std::strcmp(each->name, name) == 0) return chosen.store(each);
  TUTTI_ASSERT(false, "only kernels of adamw_kernels() can be used");
}

}  // namespace tutti
