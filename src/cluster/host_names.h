// Lists of host names as people write them: "node[1-4,7],head".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/range_set.h"

namespace tutti {

class FoldedNames {
 public:
  void add(std::string_view name);
  // In the order they came, but for numbered ones of one kind, which stand together.
  std::string text() const;

 private:
  struct Kind {
    std::string prefix;
    std::string suffix;
    size_t digits = 0;  // when they have leading zeros
    RangeSet numbers;
    bool numbered = false;
  };
  std::vector<Kind> kinds_;
};

Result<std::vector<std::string>> unfold_names(std::string_view text, size_t most);

}  // namespace tutti
