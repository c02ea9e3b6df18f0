#define KERNEL kFoldAvx2
#define KERNEL_NAME "avx2"
constexpr int kWidth = 8;
#include "fabric/fold_kernel.inc"
