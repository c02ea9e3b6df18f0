#define KERNEL kHashSse2
#include "base/hash_kernel.inc"
