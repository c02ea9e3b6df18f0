#include "fabric/fold.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "fabric/fold_kernel.h"

namespace tutti {

namespace {

// Ascending: the last is the fastest.
std::span<const FoldKernel* const> kernels() {
  static const auto runnable = [] {
    std::vector<const FoldKernel*> found{&kFoldSse2};
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (avx2) found.push_back(&kFoldAvx2);
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
      found.push_back(&kFoldAvx512);
    return found;
  }();
  return runnable;
}

std::atomic<const FoldKernel*> chosen = nullptr;

const FoldKernel& kernel() {
  const FoldKernel* now = chosen.load(std::memory_order_relaxed);
  return now != nullptr ? *now : *kernels().back();
}

// How the elements of a type are widened, joined, divided and narrowed; its accumulator is A.
template <class T, class A>
struct Steps {
  void (*widen)(A* to, const T* from, size_t elements);  // null: T is A
  void (*join)(int op, A* to, const A* left, const A* right, size_t elements);
  void (*divide)(A* values, size_t elements, A divisor);  // null: integers, towards zero
  void (*narrow)(T* to, const A* from, size_t elements);
};

// In a type that holds every divisor.
template <class A>
void divide_integers(A* values, size_t elements, uint32_t divisor) {
  using Wide = std::conditional_t<std::is_signed_v<A>, int64_t, uint64_t>;
  for (size_t i = 0; i < elements; ++i)
    values[i] = static_cast<A>(static_cast<Wide>(values[i]) / static_cast<Wide>(divisor));
}

// Block by block: operands that are joined stay in the first cache.
template <class T, class A>
void fold_blocks(const FoldTree& tree, const FoldWork& work, const Steps<T, A>& steps) {
  const uint32_t sources = tree.sources();
  // Of every operand that is not read in place, one block.
  std::vector<A> blocks((sources + tree.joins().size() + 1) * kFoldBlock);
  std::vector<const A*> operands(sources + tree.joins().size());
  const auto block = [&](size_t operand) { return blocks.data() + operand * kFoldBlock; };
  for (uint64_t begin = 0; begin < work.elements; begin += kFoldBlock) {
    const size_t count = std::min<uint64_t>(kFoldBlock, work.elements - begin);
    for (uint32_t s = 0; s < sources; ++s) {
      const T* source = reinterpret_cast<const T*>(work.sources[s]) + begin;
      if constexpr (std::is_same_v<T, A>) {
        operands[s] = source;
      } else {
        steps.widen(block(s), source, count);
        operands[s] = block(s);
      }
    }
    size_t next = sources;
    for (const FoldTree::Join& join : tree.joins()) {
      steps.join(static_cast<int>(work.op), block(next), operands[join.left], operands[join.right],
                 count);
      operands[next] = block(next);
      ++next;
    }
    const A* result = operands[next - 1];
    if (work.op == ReduceOp::mean && work.divisor > 1) {
      A* divided = block(operands.size());
      std::memcpy(divided, result, count * sizeof(A));
      if constexpr (std::is_integral_v<A>) {
        divide_integers(divided, count, work.divisor);
      } else {
        steps.divide(divided, count, static_cast<A>(work.divisor));
      }
      result = divided;
    }
    for (std::byte* target : work.targets) {
      T* to = reinterpret_cast<T*>(target) + begin;
      if constexpr (std::is_same_v<T, A>) {
        std::memmove(to, result, count * sizeof(T));
      } else if (work.widened) {
        std::memcpy(reinterpret_cast<A*>(target) + begin, result, count * sizeof(A));
      } else {
        steps.narrow(to, result, count);
      }
    }
  }
}

template <class T>
void fold_integers(const FoldTree& tree, const FoldWork& work,
                   void (*join)(int, T*, const T*, const T*, size_t)) {
  fold_blocks<T, T>(tree, work,
                    {.widen = nullptr, .join = join, .divide = nullptr, .narrow = nullptr});
}

// Sums of f32 are most of all there is.
bool fold_unrolled(const FoldTree& tree, const FoldWork& work) {
  if (work.type != DType::f32 || work.op != ReduceOp::sum || !tree.is_plain()) return false;
  const auto count = static_cast<int>(work.sources.size());
  if (count < 2 || count > kMostUnrolled) return false;
  kernel().sum_f32(reinterpret_cast<const float* const*>(work.sources.data()), count,
                   reinterpret_cast<float* const*>(work.targets.data()),
                   static_cast<int>(work.targets.size()), work.elements, work.streaming);
  return true;
}

}  // namespace

void fold(const FoldTree& tree, const FoldWork& work) {
  TUTTI_ASSERT(work.sources.size() == tree.sources(), "a tree's sources are all there");
  if (work.elements == 0 || work.targets.empty()) return;
  if (fold_unrolled(tree, work)) return;
  const FoldKernel& k = kernel();
  switch (work.type) {
    case DType::f32:
      return fold_blocks<float, float>(tree, work, {nullptr, k.join_f32, k.divide_f32, nullptr});
    case DType::f64:
      return fold_blocks<double, double>(tree, work, {nullptr, k.join_f64, k.divide_f64, nullptr});
    case DType::bf16:
      return fold_blocks<uint16_t, float>(tree, work,
                                          {k.widen_bf16, k.join_f32, k.divide_f32, k.narrow_bf16});
    case DType::f16:
      return fold_blocks<uint16_t, float>(tree, work,
                                          {k.widen_f16, k.join_f32, k.divide_f32, k.narrow_f16});
    case DType::i8: return fold_integers<int8_t>(tree, work, k.join_i8);
    case DType::u8: return fold_integers<uint8_t>(tree, work, k.join_u8);
    case DType::i32: return fold_integers<int32_t>(tree, work, k.join_i32);
    case DType::i64: return fold_integers<int64_t>(tree, work, k.join_i64);
    case DType::i16: return fold_integers<int16_t>(tree, work, k.join_i16);
    case DType::u16: return fold_integers<uint16_t>(tree, work, k.join_u16);
    case DType::u32: return fold_integers<uint32_t>(tree, work, k.join_u32);
    case DType::u64: return fold_integers<uint64_t>(tree, work, k.join_u64);
    case DType::boolean: break;
  }
  TUTTI_ASSERT(false, "calls reduce what is_reduced() says");
}

void narrow_halves(DType half, std::byte* to, const float* from, uint64_t elements) {
  const FoldKernel& k = kernel();
  (half == DType::bf16 ? k.narrow_bf16 : k.narrow_f16)(reinterpret_cast<uint16_t*>(to), from,
                                                       elements);
}

void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes, bool streaming) {
  kernel().copy(to, from, bytes, streaming);
}

void copy_rows(std::byte* to, const std::byte* from, const RowCopy& rows, bool streaming) {
  kernel().copy_rows(to, from, rows.bytes, rows.rows, rows.to_stride, rows.from_stride, streaming);
}

std::span<const char* const> fold_kernels() {
  static const auto names = [] {
    std::vector<const char*> all;
    for (const FoldKernel* each : kernels()) all.push_back(each->name);
    return all;
  }();
  return names;
}

void use_fold_kernel(const char* name) {
  for (const FoldKernel* each : kernels())
    if (std::strcmp(each->name, name) == 0) return chosen.store(each);
  TUTTI_ASSERT(false, "only kernels of fold_kernels() can be used");
}

}  // namespace tutti
