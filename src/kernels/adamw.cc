#include "kernels/adamw.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
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

void adamw_update_marked(const AdamWStep& step, const AdamWArrays& arrays,
                         const AdamWMarks& marks) {
  AdamWRecord& record = *marks.record;
  const auto place_of = [&](const float* of) {
    return reinterpret_cast<const std::byte*>(of) - reinterpret_cast<const std::byte*>(&record);
  };
  std::atomic_ref(record.block).store(0, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  record.step = marks.step;
  record.first_block = marks.first_block;
  record.elements = static_cast<int64_t>(arrays.elements);
  record.places[0] = place_of(arrays.weights_out);
  record.places[1] = place_of(arrays.first_out);
  record.places[2] = place_of(arrays.second_out);
  best().update_marked(step, arrays, marks);
}

bool adamw_restore(AdamWRecord& record, const uint32_t* done, uint32_t step) {
  if (record.block == 0 || record.step != step || done[record.block - 1] == step) return false;
  const int64_t begin = (record.block - 1 - record.first_block) * kMarkedBlock;
  const int64_t length = std::min(kMarkedBlock, record.elements - begin);
  for (size_t i = 0; i < std::size(record.old); ++i) {
    auto* place =
        reinterpret_cast<float*>(reinterpret_cast<std::byte*>(&record) + record.places[i]);
    std::memcpy(place + begin, record.old[i], static_cast<size_t>(length) * sizeof(float));
  }
  return true;
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
