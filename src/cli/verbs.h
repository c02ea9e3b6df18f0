// One function per verb of the `tutti` command, each in the file of its name. A verb gets the
// arguments after its name, talks to people on a terminal and to tools with --json, and gives the
// exit code: 0 done, 1 failed, 2 called wrongly; `run` gives the code of what it ran.
#pragma once

#include <span>
#include <string_view>

namespace tutti::cli {

struct Verb {
  std::string_view name;
  std::string_view summary;            // one line for the help; empty hides the verb
  int (*main)(int argc, char** argv);  // argv[0] is "tutti <verb>"
};

std::span<const Verb> all_verbs();

}  // namespace tutti::cli
