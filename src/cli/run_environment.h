// The environment that ranks have in common: ours, what the command line adds, and what libraries
// expect of a launcher.
#pragma once

#include <string>
#include <vector>

#include "cli/run_options.h"
#include "world/random.h"

namespace tutti::cli {

std::vector<std::string> environment_of_ranks(const RunOptions& options, Random& random);

}  // namespace tutti::cli
