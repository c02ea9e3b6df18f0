#define KERNEL kFoldAvx512
#define KERNEL_NAME "avx512"
constexpr int kWidth = 16;
#include "fabric/fold_kernel.inc"
