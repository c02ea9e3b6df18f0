#define KERNEL kAdamWAvx2
#define KERNEL_NAME "avx2"
#include "kernels/adamw_kernel.inc"
