#define KERNEL kAdamWAvx512
#define KERNEL_NAME "avx512"
#include "kernels/adamw_kernel.inc"
