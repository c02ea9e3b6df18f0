// Head and agent of this machine as programs in the background: starts them and waits until they
// answer.
#pragma once

#include <string_view>

#include "cli/home.h"
#include "world/real/real_world.h"

namespace tutti::cli {

// This program, also when its file was replaced meanwhile.
constexpr const char* kOwnProgram = "/proc/self/exe";
// Not one that `pkill tutti` finds: the keeper has to outlive what it cleans up after.
constexpr const char* kKeeperName = "rank-keeper";

// Nothing when it runs already. The error has the last lines of its log.
// With it they are of this process, and end when it does, however that is.
constexpr std::string_view kEmbedded = "--embedded";
Task<Result<bool>> start_program(RealWorld& world, const Home& home, std::string_view program,
                                 bool embedded = false);

// The head knows this machine's agent, and that it lives.
Task<Result<void>> wait_until_member(World& world, Home home);

}  // namespace tutti::cli
