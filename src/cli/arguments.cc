#include "cli/arguments.h"

#include "cli/complain.h"

namespace tutti::cli {
std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kCalledWrongly;
  }
  return {};
}

}  // namespace tutti::cli
