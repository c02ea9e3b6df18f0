#include "cli/arguments.h"

namespace tutti::cli {
namespace {

constexpr int kCalledWrongly = 2;

}  // namespace

std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kCalledWrongly;
  }
  return {};
}

}  // namespace tutti::cli
