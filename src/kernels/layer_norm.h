// Layer norm and RMS norm of rows, and their gradients.
//
//   layer norm:  y = (x - mean) · inverse · scale + shift,  inverse = 1 / sqrt(variance + epsilon)
//   RMS norm:    y = x · inverse · scale,                   inverse = 1 / sqrt(mean(x²) + epsilon)
//
// All threads call with their index; parts are independent. Sums along a row keep element i in
// lane i mod 16 (scalar.h); sums over rows are those of row_groups.h. Every target, every number
// of threads and the reference give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

// Rows are contiguous: x[rows][width].
struct LayerNorm {
  int64_t rows;
  int64_t width;
  const float* x;
  const float* scale;  // [width]
  const float* shift;  // [width]; RMS norm has none
  float epsilon;
  float* y;        // may be x
  float* mean;     // [rows]; RMS norm has none
  float* inverse;  // [rows]
};
void layer_norm(const LayerNorm& norm, int thread, int threads);
void rms_norm(const LayerNorm& norm, int thread, int threads);

struct LayerNormGrad {
  int64_t rows;
  int64_t width;
  const float* dy;
  const float* x;
  const float* scale;
  const float* mean;  // RMS norm has none
  const float* inverse;
  float* dx;          // may be dy
  float* dscale;      // [width]
  float* dshift;      // [width]; RMS norm has none
  float* group_sums;  // between the phases: layer_norm_grad_floats() of them, shared by the threads
};
size_t layer_norm_grad_floats(int64_t rows, int64_t width);

// First every thread: dx and the sums of groups of rows.
void layer_norm_grad_rows(const LayerNormGrad& grad, int thread, int threads);
void rms_norm_grad_rows(const LayerNormGrad& grad, int thread, int threads);
// Then, after a barrier of the caller's, every thread: dscale and dshift.
void layer_norm_grad_join(const LayerNormGrad& grad, int thread, int threads);
void rms_norm_grad_join(const LayerNormGrad& grad, int thread, int threads);

void layer_norm_reference(const LayerNorm& norm);
void rms_norm_reference(const LayerNorm& norm);
void layer_norm_grad_reference(const LayerNormGrad& grad);
void rms_norm_grad_reference(const LayerNormGrad& grad);

}  // namespace tutti
