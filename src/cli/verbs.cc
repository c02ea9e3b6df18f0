#include "cli/verbs.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/suggest.h"

namespace tutti {
namespace {

constexpr Verb kVerbs[] = {
    {"help", "show this list", run_help},
    {"version", "print the version", run_version},
};

// People try these before they read anything.
std::string_view canonical(std::string_view word) {
  if (word == "--help" || word == "-h") return "help";
  if (word == "--version") return "version";
  return word;
}

int refuse(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  const auto meant = suggest(word, names);
  const std::string hint = meant ? fmt::format("did you mean: tutti {}", *meant)
                                 : std::string("see them all with: tutti help");
  fmt::print(stderr, "tutti: there is no command '{}'; {}\n", word, hint);
  return kExitUsage;
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

int run_command(Arguments words) {
  if (words.empty()) return run_help({});
  const std::string_view name = canonical(words.front());
  for (const Verb& verb : kVerbs) {
    if (verb.name == name) return verb.run(words.subspan(1));
  }
  return refuse(words.front());
}

}  // namespace tutti
