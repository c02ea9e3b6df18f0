// One set of kernels; adamw_kernel.inc is compiled once for each kind of processor.
#pragma once

#include "kernels/adamw.h"

namespace tutti {

struct AdamWKernel {
  const char* name;
  void (*update)(const AdamWStep& step, const AdamWArrays& arrays);
  void (*update_undoable)(const AdamWStep& step, const AdamWArrays& arrays, const AdamWUndo& undo);
  void (*update_marked)(const AdamWStep& step, const AdamWArrays& arrays, const AdamWMarks& marks);
};

extern const AdamWKernel kAdamWSse2;
extern const AdamWKernel kAdamWAvx2;
extern const AdamWKernel kAdamWAvx512;

}  // namespace tutti
