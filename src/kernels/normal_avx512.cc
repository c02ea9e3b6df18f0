#define KERNEL kNormalAvx512
#define KERNEL_NAME "avx512"
#include "kernels/normal_kernel.inc"
