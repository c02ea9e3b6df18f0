#include "cli/screen.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cli {
namespace {

bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Bytes of the first so many letters.
size_t bytes_of(std::string_view text, size_t letters) {
  size_t at = 0;
  while (at < text.size() && (!begins_letter(text[at]) || letters > 0)) {
    if (begins_letter(text[at])) --letters;
    ++at;
  }
  return at;
}

}  // namespace

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_letter));
}

std::string clipped(std::string_view text, size_t columns) {
  if (width_of(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  return std::string(text.substr(0, bytes_of(text, columns - 1))) + "…";
}

std::string padded(std::string_view text, size_t columns, bool right) {
  std::string fitting = clipped(text, columns);
  const std::string spaces(columns - width_of(fitting), ' ');
  return right ? spaces + fitting : fitting + spaces;
}

std::string harmless(std::string_view text) {
  std::string plain(text);
  for (size_t i = 0; i < plain.size(); ++i) {
    const auto byte = static_cast<unsigned char>(plain[i]);
    // Some terminals take U+0080 to U+009F for control characters too.
    const bool upper =
        byte == 0xc2 && i + 1 < plain.size() && static_cast<unsigned char>(plain[i + 1]) < 0xa0;
    if (byte < ' ' || byte == 127) plain[i] = ' ';
    if (upper) plain[i] = plain[i + 1] = '?';
  }
  return plain;
}

std::string Screen::frame(const std::vector<std::string>& lines) {
  std::string bytes = shown_ ? "" : "\033[2J";
  const std::vector<std::string> before = shown_.value_or(std::vector<std::string>());
  for (size_t i = 0; i < std::max(lines.size(), before.size()); ++i) {
    const std::string_view line = i < lines.size() ? std::string_view(lines[i]) : "";
    if (i < before.size() && before[i] == line) continue;
    bytes += fmt::format("\033[{};1H{}\033[K", i + 1, line);
  }
  shown_ = lines;
  return bytes;
}

}  // namespace tutti::cli
