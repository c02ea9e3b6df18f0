// What an operation is told besides its operands: small values with names, known when the graph is
// built, that print and parse back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

using Names = std::vector<std::string>;
using Attribute = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, Names>;

// Sorted by name.
class Attributes {
 public:
  using Entry = std::pair<std::string, Attribute>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries);

  bool operator==(const Attributes&) const = default;
  void set(std::string_view name, Attribute value);
  void remove(std::string_view name);
  const Attribute* find(std::string_view name) const;
  // Null as well when it is something else.
  template <class T>
  const T* find(std::string_view name) const {
    const Attribute* found = find(name);
    return found == nullptr ? nullptr : std::get_if<T>(found);
  }
  template <class T>
  T get(std::string_view name, const T& otherwise = {}) const {
    const T* found = find<T>(name);
    return found == nullptr ? otherwise : *found;
  }
  const std::vector<Entry>& entries() const { return entries_; }
  std::string text() const;  // {count=6, dim="embed"}, or nothing

 private:
  std::vector<Entry> entries_;
};

// A number with a point or an exponent, so that it does not read as a whole one.
std::string double_text(double value);
std::string quoted(std::string_view text);

}  // namespace tutti
