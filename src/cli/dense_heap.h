// Memory for very large simulations: what `new` gives, up to 4 KiB, lies without a header among
// others of its size, and taking and giving back are a few instructions. One thread only.
#pragma once

#include <cstdint>

namespace tutti::cli {

// From now on, for what this thread allocates, which only it may free. Where there is no room for
// so many addresses, and under sanitizers, the C library's allocator stays.
void use_dense_heap();
uint64_t dense_heap_bytes();  // in use

}  // namespace tutti::cli
