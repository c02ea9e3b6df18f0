#define KERNEL kHashAvx2
#include "base/hash_kernel.inc"
