// What everybody in a job waits for, for people and for tools.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/stuck_data.h"

namespace tutti::cli {

// Ends with what to do next, if there is something.
std::string stuck_text(const SeenJob& job);
// The last calls of these processes (numbers through all roles), newest last.
std::string history_text(const SeenJob& job, const RangeSet& processes);
Json stuck_json(const SeenJob& job);

}  // namespace tutti::cli
