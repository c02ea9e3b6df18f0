#define KERNEL kFoldSse2
#define KERNEL_NAME "sse2"
constexpr int kWidth = 4;
#include "fabric/fold_kernel.inc"
