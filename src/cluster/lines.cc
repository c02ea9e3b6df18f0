#include "cluster/lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

size_t whole_characters(std::string_view text) {
  constexpr size_t kLongestCharacter = 4;
  for (size_t back = 1; back <= std::min(text.size(), kLongestCharacter); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // within a character
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return back < length ? text.size() - back : text.size();
  }
  return text.size();  // no UTF-8
}

void LastLines::add(std::string_view line, LineEnd end) {
  if (!within_line_) {
    if (lines_.size() == kLines) lines_.pop_front();
    if (line.size() <= kBytesPerLine) {
      lines_.emplace_back(line);
    } else {
      const std::string_view beginning = line.substr(0, kBytesPerLine);
      lines_.push_back(fmt::format("{}…", beginning.substr(0, whole_characters(beginning))));
    }
  }
  within_line_ = end == LineEnd::continued;
}

}  // namespace tutti
