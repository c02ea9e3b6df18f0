#include <fmt/format.h>

#include "cli/verbs.h"

namespace tutti {

int run_help(Arguments) {
  fmt::print("tutti: many computers train one model as if they were one\n\nusage: tutti COMMAND\n\n");
  for (const Verb& verb : verbs()) fmt::print("  {:<10} {}\n", verb.name, verb.summary);
  return kExitOk;
}

}  // namespace tutti
