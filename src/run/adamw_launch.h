// AdamW of a tensor, or of its matrices with their panels.
#pragma once

#include "run/launch.h"

namespace tutti {

std::unique_ptr<Launch> make_adamw_launch(const Program& program, const Instruction& instruction,
                                          std::span<float* const> panels);

}  // namespace tutti
