#include "cli/keys.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tutti::cli {
namespace {

using Kind = Key::Kind;

constexpr char kEscape = '\033';
constexpr char kDelete = 127;
// No key has a longer sequence; who sends one is no keyboard.
constexpr size_t kLongestSequence = 16;

constexpr std::pair<std::string_view, Kind> kSequences[] = {
    {"[A", Kind::up},       {"[B", Kind::down},       {"[C", Kind::right}, {"[D", Kind::left},
    {"OA", Kind::up},       {"OB", Kind::down},       {"OC", Kind::right}, {"OD", Kind::left},
    {"[5~", Kind::page_up}, {"[6~", Kind::page_down}, {"[H", Kind::home},  {"[F", Kind::end},
    {"[1~", Kind::home},    {"[4~", Kind::end},       {"OH", Kind::home},  {"OF", Kind::end},
};

// Bytes of the letter that begins with this one.
size_t letter_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0xc0) return 1;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

// Of an escape sequence at the beginning of the text; nothing while it goes on.
std::optional<size_t> sequence_size(std::string_view text) {
  if (text.size() < 2) return {};
  if (text[1] != '[' && text[1] != 'O') return 1;  // Escape alone, then another key
  for (size_t i = 2; i < text.size(); ++i)
    if ((text[i] >= '@' && text[i] <= '~') || i == kLongestSequence) return i + 1;
  return {};
}

Key of_byte(char byte) {
  if (byte == '\r' || byte == '\n') return {Kind::enter, ""};
  if (byte == kDelete || byte == '\b') return {Kind::backspace, ""};
  return {Kind::control, std::string(1, static_cast<char>(byte + 'a' - 1))};
}

}  // namespace

std::vector<Key> KeyDecoder::feed(std::string_view bytes) {
  left_ += bytes;
  std::vector<Key> keys;
  while (!left_.empty()) {
    const char first = left_.front();
    size_t size = letter_size(first);
    if (first == kEscape) {
      const auto whole = sequence_size(left_);
      if (!whole) break;
      size = *whole;
      const std::string_view tail = std::string_view(left_).substr(1, size - 1);
      const auto* known =
          std::ranges::find(kSequences, tail, &std::pair<std::string_view, Kind>::first);
      if (size == 1) keys.push_back({Kind::escape, ""});
      if (known != std::end(kSequences)) keys.push_back({known->second, ""});
    } else if (left_.size() < size) {
      break;
    } else if (static_cast<unsigned char>(first) < ' ' || first == kDelete) {
      keys.push_back(of_byte(first));
    } else {
      keys.push_back({Kind::text, left_.substr(0, size)});
    }
    left_.erase(0, size);
  }
  return keys;
}

std::vector<Key> KeyDecoder::give_up() {
  const std::string left = std::exchange(left_, "");
  if (left != std::string(1, kEscape)) return {};
  return {{Kind::escape, ""}};
}

}  // namespace tutti::cli
