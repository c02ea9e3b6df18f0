// The command lines of verbs that use CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace tutti::cli {

// Nothing when the command is to go on, else the exit code: 0 after --help, 2 when called wrongly.
std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv);

}  // namespace tutti::cli
