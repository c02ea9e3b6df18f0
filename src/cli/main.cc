#include <string_view>
#include <vector>

#include "cli/verbs.h"

int main(int count, char** words) {
  const std::vector<std::string_view> arguments(words + 1, words + count);
  return tutti::run_command(arguments);
}
