#define KERNEL kNormalSse2
#define KERNEL_NAME "sse2"
#include "kernels/normal_kernel.inc"
