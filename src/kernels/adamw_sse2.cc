#define KERNEL kAdamWSse2
#define KERNEL_NAME "sse2"
#include "kernels/adamw_kernel.inc"
