#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "world/real/this_process.h"

namespace tutti::cli {

std::string Table::text(bool colour) const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.resize(line.find_last_not_of(' ') + 1);
    const bool faint = colour && &row == &rows_.front();
    text += faint ? fmt::format("\033[2m{}\033[0m\n", line) : line + "\n";
  }
  return text;
}

bool wants_colour(int number) {
  const char* term = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  return is_terminal(number) && (refused == nullptr || *refused == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string age_text(int64_t now_unix_ns, int64_t then_unix_ns) {
  const int64_t seconds = std::max<int64_t>(0, (now_unix_ns - then_unix_ns) / 1'000'000'000);
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 60 * kMinute;
  constexpr int64_t kDay = 24 * kHour;
  if (seconds < 2 * kMinute) return fmt::format("{}s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{}m", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{}h", seconds / kHour);
  return fmt::format("{}d", seconds / kDay);
}

}  // namespace tutti::cli
