#include "cli/python_verb.h"

#include <fmt/format.h>

#include <span>

#include "cli/complain.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// Python of its PATH, so that an environment that is active is used.
constexpr const char* kPython = "python3";

}  // namespace

int hand_over(const PythonVerb& verb, int argc, char** argv) {
  const auto words = std::span(argv, static_cast<size_t>(argc)).subspan(1);
  std::vector<std::string> command{kPython, "-m", std::string(verb.module)};
  command.insert(command.end(), verb.first.begin(), verb.first.end());
  for (const std::string_view word : words) {
    if (word == "--help" || word == "-h") {
      fmt::print("{}", verb.help);
      return 0;
    }
    if (verb.has_file && !word.starts_with('-')) break;
  }
  command.insert(command.end(), words.begin(), words.end());
  return complain(verb.name, become(command));
}

}  // namespace tutti::cli
