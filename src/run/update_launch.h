// Rows put into a cache at a position that is known only when they come.
#pragma once

#include "run/launch.h"

namespace tutti {

std::unique_ptr<Launch> make_update_launch(const Instruction& instruction);

}  // namespace tutti
