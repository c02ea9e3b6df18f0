#include "cli/verbs.h"

#include <fmt/format.h>

#include "base/version.h"

namespace tutti::cli {
namespace {

int help(int, char**) {
  fmt::print(
      "tutti: many computers train one model as if they were one\n\nusage: tutti COMMAND\n\n");
  for (const Verb& verb : all_verbs()) {
    if (!verb.summary.empty()) fmt::print("  {:<10} {}\n", verb.name, verb.summary);
  }
  return 0;
}

int version(int, char**) {
  fmt::print("tutti {}\n", kVersion);
  return 0;
}

constexpr Verb kVerbs[] = {
    {"help", "show this list", help},
    {"version", "print the version", version},
};

}  // namespace

std::span<const Verb> all_verbs() { return kVerbs; }

}  // namespace tutti::cli
