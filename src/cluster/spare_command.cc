#include "cluster/spare_command.h"

#include <algorithm>

namespace tutti {
namespace {

bool is_python(std::string_view program) {
  return program.substr(program.find_last_of('/') + 1).starts_with("python");
}

// Those of the interpreter that are followed by a word of their own.
bool takes_word(std::string_view option) { return option == "-X" || option == "-W"; }

}  // namespace

Result<std::vector<std::string>> spare_command(const job::Role& role) {
  const auto& command = role.command();
  if (command.empty() || !is_python(command[0]))
    return fail(Code::invalid, "is for Python programs, whose command begins with \"python\"");
  int next = 1;
  while (next < command.size() && command[next].starts_with('-') && command[next] != "-m" &&
         command[next] != "-c")
    next += takes_word(command[next]) ? 2 : 1;
  const bool has_module = next + 1 < command.size() && command[next] == "-m";
  const bool has_script = next < command.size() && !command[next].starts_with('-');
  if (!has_module && !has_script)
    return fail(Code::invalid,
                "is for commands with a script or a module, as in "
                "[\"python\", \"train.py\"] or [\"python\", \"-m\", \"train\"]");
  std::vector<std::string> words(command.begin(), command.begin() + next);
  words.insert(words.end(), {"-m", "tutti.spare"});
  if (!role.preload().empty()) {
    words.emplace_back("--preload");
    words.push_back(fmt::format("{}", fmt::join(role.preload(), ",")));
  }
  words.insert(words.end(), command.begin() + next, command.end());
  return words;
}

}  // namespace tutti
