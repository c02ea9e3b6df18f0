// What one set of kernels offers; fold_kernel.inc is compiled once for each kind of processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

// Blocks are joined in this many elements at a time, so that what is in between stays in the first
// cache: a block of f64 is 4 KiB.
constexpr size_t kFoldBlock = 512;
// Plain trees of so many sources are unrolled.
constexpr int kMostUnrolled = 8;

struct FoldKernel {
  const char* name;
  // Sum of f32 over the plain tree of 2 to kMostUnrolled sources, stored in every target.
  void (*sum_f32)(const float* const* sources, int count, float* const* targets, int target_count,
                  size_t elements, bool streaming);
  void (*widen_bf16)(float* to, const uint16_t* from, size_t elements);
  void (*narrow_bf16)(uint16_t* to, const float* from, size_t elements);
  void (*widen_f16)(float* to, const uint16_t* from, size_t elements);
  void (*narrow_f16)(uint16_t* to, const float* from, size_t elements);
  void (*join_f32)(int op, float* to, const float* left, const float* right, size_t elements);
  void (*join_f64)(int op, double* to, const double* left, const double* right, size_t elements);
  void (*join_i8)(int op, int8_t* to, const int8_t* left, const int8_t* right, size_t elements);
  void (*join_u8)(int op, uint8_t* to, const uint8_t* left, const uint8_t* right, size_t elements);
  void (*join_i32)(int op, int32_t* to, const int32_t* left, const int32_t* right, size_t elements);
  void (*join_i16)(int op, int16_t* to, const int16_t* left, const int16_t* right, size_t elements);
  void (*join_u16)(int op, uint16_t* to, const uint16_t* left, const uint16_t* right,
                   size_t elements);
  void (*join_u32)(int op, uint32_t* to, const uint32_t* left, const uint32_t* right,
                   size_t elements);
  void (*join_u64)(int op, uint64_t* to, const uint64_t* left, const uint64_t* right,
                   size_t elements);
  void (*join_i64)(int op, int64_t* to, const int64_t* left, const int64_t* right, size_t elements);
  void (*divide_f32)(float* values, size_t elements, float divisor);
  void (*divide_f64)(double* values, size_t elements, double divisor);
  void (*copy)(std::byte* to, const std::byte* from, size_t bytes, bool streaming);
  void (*copy_rows)(std::byte* to, const std::byte* from, size_t bytes, size_t rows,
                    size_t to_stride, size_t from_stride, bool streaming);
};

extern const FoldKernel kFoldSse2;
extern const FoldKernel kFoldAvx2;
extern const FoldKernel kFoldAvx512;

}  // namespace tutti
