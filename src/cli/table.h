// Rows for people: columns as wide as what is in them, the head faint on a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text(bool colour) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Whether what is printed to this descriptor may have colour: a terminal, and nobody said no.
bool wants_colour(int number);
// "12s", "3m", "5h", "2d"; how long ago that was.
std::string age_text(int64_t now_unix_ns, int64_t then_unix_ns);

}  // namespace tutti::cli
