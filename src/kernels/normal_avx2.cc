#define KERNEL kNormalAvx2
#define KERNEL_NAME "avx2"
#include "kernels/normal_kernel.inc"
