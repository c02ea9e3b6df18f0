// Finds the verb and hands over.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/suggest.h"
#include "cli/complain.h"
#include "cli/verbs.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// People try these before they read anything.
std::string_view canonical(std::string_view word) {
  if (word == "--help" || word == "-h") return "help";
  if (word == "--version") return "version";
  return word;
}

int refuse(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Verb& verb : all_verbs()) {
    if (!verb.summary.empty()) names.push_back(verb.name);
  }
  const auto meant = suggest(word, names);
  const std::string hint = meant ? fmt::format("did you mean: tutti {}", *meant)
                                 : std::string("see them all with: tutti help");
  fmt::print(stderr, "tutti: there is no command '{}'; {}\n", word, hint);
  return kCalledWrongly;
}

int run_verb(int argc, char** argv) {
  const std::string_view name = argc > 1 ? canonical(argv[1]) : "help";
  for (const Verb& verb : all_verbs()) {
    if (verb.name != name) continue;
    std::string called_as = fmt::format("tutti {}", name);
    std::vector<char*> arguments = {called_as.data()};
    for (int i = 2; i < argc; ++i) arguments.push_back(argv[i]);
    const int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    return verb.main(count, arguments.data());
  }
  return refuse(argv[1]);
}

}  // namespace
}  // namespace tutti::cli

int main(int argc, char** argv) {
  tutti::fill_missing_standard_streams();
  return tutti::cli::run_verb(argc, argv);
}
