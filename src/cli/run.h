#pragma once

#include <string_view>

#include "cli/run_options.h"

namespace tutti::cli {

int run(int argc, char** argv);
// What the options say, for a command of this name. Its exit code; or this process ends of the
// signal that ended the run.
int run_as(std::string_view verb, RunOptions options);

}  // namespace tutti::cli
