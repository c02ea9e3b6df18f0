#include "base/version.h"

#include <fmt/format.h>

#include "cli/verbs.h"

namespace tutti {

int run_version(Arguments) {
  fmt::print("tutti {}\n", kVersion);
  return kExitOk;
}

}  // namespace tutti
