// Verbs whose work is written in Python, as models are: the command becomes the module's process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::cli {

struct PythonVerb {
  std::string_view name;
  std::string_view module;  // tutti.generate
  std::string_view help;
  bool has_file = false;             // behind which --help is the file's own
  std::vector<std::string> first{};  // words for the module, before those that were typed
};

int hand_over(const PythonVerb& verb, int argc, char** argv);

}  // namespace tutti::cli
