// Instructions that have kernels of their own (src/kernels).
#pragma once

#include "run/launch.h"

namespace tutti {

// Nothing if there is no kernel for such operands.
std::unique_ptr<Launch> make_heavy_launch(const Program& program, const Instruction& instruction,
                                          std::span<const LoopFunction> loops,
                                          std::span<float* const> panels, int threads);

}  // namespace tutti
