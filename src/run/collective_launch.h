// Instructions that begin a collective and wait for it: one thread's work.
#pragma once

#include "run/launch.h"

namespace tutti {

std::unique_ptr<Launch> make_collective_launch(const Instruction& instruction);

}  // namespace tutti
