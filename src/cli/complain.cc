#include "cli/complain.h"

#include <fmt/format.h>

#include <cstdio>

namespace tutti::cli {

int complain(std::string_view verb, const Error& error, int code) {
  fmt::print(stderr, "tutti {}: {}\n", verb, error.text());
  return code;
}

}  // namespace tutti::cli
