#include "cluster/host_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tutti {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// More digits are not counted with.
constexpr size_t kMostDigits = 9;

}  // namespace

// The number at the end of the first part of the name: "node12.lab" is node, 12, .lab.
void FoldedNames::add(std::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());
  size_t digits = 0;
  while (digits < std::min(dot, kMostDigits) && is_digit(name[dot - digits - 1])) ++digits;
  const bool address =
      std::ranges::all_of(name, [](char c) { return is_digit(c) || c == '.' || c == ':'; });
  Kind kind{.prefix = std::string(name.substr(0, dot - digits)),
            .suffix = std::string(name.substr(dot))};
  uint32_t number = 0;
  if (digits != 0 && !address) {
    kind.numbered = true;
    std::from_chars(name.data() + dot - digits, name.data() + dot, number);
    kind.digits = digits > 1 && name[dot - digits] == '0' ? digits : 0;
  } else {
    kind.prefix = std::string(name);
    kind.suffix.clear();
  }
  const auto same = [&](const Kind& other) {
    return other.numbered && kind.numbered && other.prefix == kind.prefix &&
           other.suffix == kind.suffix && other.digits == kind.digits;
  };
  auto found = std::ranges::find_if(kinds_, same);
  if (found == kinds_.end()) found = kinds_.insert(kinds_.end(), std::move(kind));
  if (found->numbered) found->numbers.add(number);
}

std::string FoldedNames::text() const {
  std::string text;
  for (const Kind& kind : kinds_) {
    if (!text.empty()) text += ',';
    if (!kind.numbered) {
      text += kind.prefix;
    } else if (kind.numbers.size() == 1) {
      text +=
          fmt::format("{}{:0{}}{}", kind.prefix, kind.numbers.front(), kind.digits, kind.suffix);
    } else {
      std::string numbers;
      for (const RangeSet::Range& range : kind.numbers.ranges()) {
        if (!numbers.empty()) numbers += ',';
        numbers += fmt::format("{:0{}}", range.first, kind.digits);
        if (range.last != range.first) numbers += fmt::format("-{:0{}}", range.last, kind.digits);
      }
      text += fmt::format("{}[{}]{}", kind.prefix, numbers, kind.suffix);
    }
  }
  return text;
}

Result<std::vector<std::string>> unfold_names(std::string_view text, size_t most) {
  std::vector<std::string> names;
  while (!text.empty()) {
    size_t stop = 0;
    for (bool inside = false; stop < text.size() && (inside || text[stop] != ','); ++stop)
      inside = text[stop] == '[' || (inside && text[stop] != ']');
    const std::string_view piece = text.substr(0, stop);
    text.remove_prefix(std::min(stop + 1, text.size()));
    const size_t open = piece.find('[');
    const size_t close = piece.find(']');
    if (open == std::string_view::npos) {
      names.emplace_back(piece);
    } else if (close == std::string_view::npos || close < open) {
      return fail(Code::invalid, "'{}' lacks its closing ]", piece);
    } else {
      const std::string_view inner = piece.substr(open + 1, close - open - 1);
      const size_t width = std::min(inner.find_first_of(",-"), inner.size());
      const size_t digits = width > 1 && inner[0] == '0' ? width : 0;
      TRY(const RangeSet numbers, RangeSet::parse(inner));
      if (numbers.empty()) return fail(Code::invalid, "'{}' has no numbers between [ and ]", piece);
      if (names.size() + numbers.size() > most)
        return fail(Code::invalid, "more than {} hosts", most);
      for (const uint32_t number : numbers.members())
        names.push_back(fmt::format("{}{:0{}}{}", piece.substr(0, open), number, digits,
                                    piece.substr(close + 1)));
    }
    if (names.size() > most) return fail(Code::invalid, "more than {} hosts", most);
  }
  return names;
}

}  // namespace tutti
