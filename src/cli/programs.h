// Head and agent of this machine as programs in the background: starts them and waits until they
// answer.
#pragma once

#include <string_view>

#include "cli/home.h"
#include "world/real/real_world.h"

namespace tutti::cli {

// Nothing when it runs already. The error has the last lines of its log.
Task<Result<bool>> start_program(RealWorld& world, const Home& home, std::string_view program);

// The head knows this machine's agent, and that it lives.
Task<Result<void>> wait_until_member(World& world);

}  // namespace tutti::cli
