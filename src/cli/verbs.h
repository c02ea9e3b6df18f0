// The verbs of the `tutti` command: a table, and one file per verb.
#pragma once

#include <span>
#include <string_view>

namespace tutti {

// Exit codes a script may rely on.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;  // the work failed
constexpr int kExitUsage = 2;   // the command line is wrong

// The words after the verb.
using Arguments = std::span<const std::string_view>;

struct Verb {
  std::string_view name;
  std::string_view summary;  // one line of `tutti help`
  int (*run)(Arguments arguments);
};

// All verbs, in the order `tutti help` shows them.
std::span<const Verb> verbs();

// Runs the verb that `words` begins with; prints help when there is none.
int run_command(Arguments words);

int run_help(Arguments arguments);
int run_version(Arguments arguments);

}  // namespace tutti
