// Which operation was the first to make a number that is none: inf, or NaN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/device.h"

namespace tutti {

// Runs instructions from the first to before `end`, one by one, and looks at what each has written.
// Nothing when all numbers are finite; else words that name the operation, where it was asked for,
// and which of its numbers it was: or the input that was not finite to begin with.
Result<std::optional<std::string>> find_not_finite(LoadedProgram& program, size_t end,
                                                   const ProgramCall& call);

}  // namespace tutti
