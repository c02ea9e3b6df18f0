#include "cluster/spare_command.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

namespace tutti {
namespace {

std::string parked(std::vector<std::string> words, std::vector<std::string> modules = {}) {
  job::Role role;
  for (const std::string& word : words) role.add_command(word);
  for (const std::string& module : modules) role.add_preload(module);
  auto command = spare_command(role);
  return command ? fmt::format("{}", fmt::join(*command, " ")) : "refused";
}

TEST_CASE("a script and a module can be parked, with the interpreter's options") {
  CHECK(parked({"python", "train.py", "-v"}) == "python -m tutti.spare train.py -v");
  CHECK(parked({"/opt/bin/python3.11", "-u", "-X", "dev", "train.py"}, {"numpy", "json"}) ==
        "/opt/bin/python3.11 -u -X dev -m tutti.spare --preload numpy,json train.py");
  CHECK(parked({"python", "-m", "train", "-m", "x"}) == "python -m tutti.spare -m train -m x");
}

TEST_CASE("what has no script cannot") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"sh", "-c", "python train.py"},
                                             {"./train.py"},
                                             {"python"},
                                             {"python", "-u"},
                                             {"python", "-X"},
                                             {"python", "-c", "pass"},
                                             {"python", "-m"}}) {
    CAPTURE(words.size());
    CHECK(parked(words) == "refused");
  }
}

}  // namespace
}  // namespace tutti
