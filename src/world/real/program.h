// Finds the program a command means, and puts into words why one could not be started.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

// The path to execute. A command without a slash is looked up in the PATH of the environment that
// the program will have; relative paths count from the folder it will run in ("" is ours).
Result<std::string> find_program(const std::string& command,
                                 std::span<const std::string> environment,
                                 const std::string& folder);

// What execve's error means for this path.
Error explain_exec(int error, const std::string& path, const std::string& folder);

}  // namespace tutti
