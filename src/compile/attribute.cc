#include "compile/attribute.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

struct Printer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return double_text(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::string text;
    for (const T& value : values) text += (text.empty() ? "" : ", ") + (*this)(value);
    return fmt::format("[{}]", text);
  }
};

auto place_of(auto& entries, std::string_view name) {
  return std::ranges::lower_bound(
      entries, name, {}, [](const auto& entry) -> std::string_view { return entry.first; });
}

}  // namespace

Attributes::Attributes(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void Attributes::set(std::string_view name, Attribute value) {
  const auto place = place_of(entries_, name);
  if (place != entries_.end() && place->first == name)
    place->second = std::move(value);
  else
    entries_.emplace(place, std::string(name), std::move(value));
}

void Attributes::remove(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; });
}

const Attribute* Attributes::find(std::string_view name) const {
  const auto place = place_of(entries_, name);
  return place != entries_.end() && place->first == name ? &place->second : nullptr;
}

std::string Attributes::text() const {
  if (entries_.empty()) return {};
  std::string text;
  for (const auto& [name, value] : entries_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, std::visit(Printer{}, value));
  return fmt::format("{{{}}}", text);
}

std::string double_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (letter == '\n')
      out += "\\n";
    else
      out += letter;
  }
  return out + '"';
}

}  // namespace tutti
