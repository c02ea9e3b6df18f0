// How many multiply-adds a core does at most: chains of them in registers, with the widest vectors
// there are. What a matrix product could reach if nothing else took time.
#pragma once

#include <cstdint>

namespace tutti {

// Floating-point operations that fma_chains() does in a round; a multiply-add is two.
int64_t fma_chain_flops();
// Does them so many times, on this core; the result is only there so that they are done.
float fma_chains(int64_t rounds);

}  // namespace tutti
