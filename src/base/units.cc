#include "base/units.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <span>

namespace tutti {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr Unit kTimeUnits[] = {
    {"ns", 1},   {"us", 1e3},   {"µs", 1e3},   {"ms", 1e6},    {"s", 1e9},
    {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9},
};

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1e3},
    {"kB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes a plain decimal number ("12", "1.5", ".5") from the front of `text`.
std::expected<double, std::errc> take_number(std::string_view& text) {
  if (text.empty() || !(is_digit(text[0]) || text[0] == '.')) {
    return std::unexpected(std::errc::invalid_argument);
  }
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::unexpected(error);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// Takes what stands before the next digit.
std::string_view take_word(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && !is_digit(text[length]) && text[length] != '.') ++length;
  std::string_view word = text.substr(0, length);
  text.remove_prefix(length);
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return word;
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

std::unexpected<Error> not_a_duration(std::string_view text) {
  return fail(Code::invalid, "'{}' is not a duration; write it like 250ms, 1.5s, 2m30s or 1h",
              text);
}

std::unexpected<Error> not_a_size(std::string_view text) {
  return fail(Code::invalid, "'{}' is not a size; write it like 4096, 64KiB, 1.5GiB or 10MB", text);
}

// Three significant digits: 1.50, 38.2, 512.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  std::string_view rest = text;
  double total_ns = 0;
  double previous_scale = std::numeric_limits<double>::infinity();
  bool bare = false;
  do {
    const auto number = take_number(rest);
    if (!number || bare) return not_a_duration(text);
    const std::string_view word = take_word(rest);
    const Unit* unit = word.empty() ? find_unit(kTimeUnits, "s") : find_unit(kTimeUnits, word);
    // "2m30s" is a duration; "30s2m" is a slip.
    if (unit == nullptr || unit->scale >= previous_scale) return not_a_duration(text);
    bare = word.empty();
    if (bare && total_ns > 0) return not_a_duration(text);
    previous_scale = unit->scale;
    total_ns += *number * unit->scale;
  } while (!rest.empty());
  // 2^63 itself is representable as a double and one too many.
  if (total_ns >= 0x1p63) return fail(Code::invalid, "'{}' is longer than 292 years", text);
  return Duration(std::llround(total_ns));
}

std::string format_duration(Duration duration) {
  if (duration == Duration::zero()) return "0 s";
  const double ns = static_cast<double>(duration.count());
  const double size = std::abs(ns);
  const char* sign = ns < 0 ? "-" : "";
  if (size < 1e3) return fmt::format("{}{:.0f} ns", sign, size);
  if (size < 999.5e3) return fmt::format("{}{} µs", sign, three_digits(size / 1e3));
  if (size < 999.5e6) return fmt::format("{}{} ms", sign, three_digits(size / 1e6));
  if (size < 60e9 - 0.05e9) return fmt::format("{}{} s", sign, three_digits(size / 1e9));
  const int64_t seconds = std::llround(size / 1e9);
  if (seconds < 3600) return fmt::format("{}{} min {} s", sign, seconds / 60, seconds % 60);
  const int64_t minutes = std::llround(size / 60e9);
  if (minutes < 24 * 60) return fmt::format("{}{} h {} min", sign, minutes / 60, minutes % 60);
  const int64_t hours = std::llround(size / 3600e9);
  return fmt::format("{}{} d {} h", sign, hours / 24, hours % 24);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest = text;
  // Whole numbers are read exactly: a double would round sizes past 2^53.
  uint64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return whole;

  const auto number = take_number(rest);
  if (!number) return not_a_size(text);
  const std::string_view word = take_word(rest);
  const Unit* unit = find_unit(kByteUnits, word);
  if (unit == nullptr || !rest.empty()) return not_a_size(text);
  const double bytes = *number * unit->scale;
  if (bytes >= 0x1p64) return fail(Code::invalid, "'{}' is more than 16 EiB", text);
  if (bytes != std::floor(bytes)) {
    return fail(Code::invalid, "'{}' is not a whole number of bytes", text);
  }
  return static_cast<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  // Rounding to a tenth must not print 1024.0 of the smaller unit.
  while (value >= 1023.95 && name + 1 < std::size(kNames)) {
    value /= 1024;
    ++name;
  }
  return fmt::format("{:.1f} {}", value, kNames[name]);
}

}  // namespace tutti
