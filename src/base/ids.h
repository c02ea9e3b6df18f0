// Names that cannot be mixed up: an Id<JobTag> is not an Id<HostTag>, though both are numbers.
//
//   struct JobTag { static constexpr std::string_view kName = "job"; };
//   using JobId = Id<JobTag>;
//   JobId(7).text() == "job-7";   JobId::parse("job-7") gives JobId(7)
//
// A Uuid is a name nobody else has chosen, made from random words the caller gives (a World's
// Random), so that a simulation chooses the same names again.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}

  constexpr uint64_t value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

  std::string text() const { return fmt::format("{}-{}", Tag::kName, value_); }

  static Result<Id> parse(std::string_view text) {
    const std::string_view name = Tag::kName;
    const bool named = text.starts_with(name) && text.substr(name.size()).starts_with('-');
    const std::string_view digits = named ? text.substr(name.size() + 1) : std::string_view();
    uint64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (digits.empty() || error != std::errc() || stop != end) {
      return fail(Code::invalid, "'{}' is not a {} id; write it like {}-7", text, name, name);
    }
    return Id(value);
  }

 private:
  uint64_t value_ = 0;
};

// 128 bits, shown as RFC 9562 version 4: "9b2e4c1a-7d35-4f60-8a91-0c5f6e7d8b9a".
class Uuid {
 public:
  constexpr Uuid() = default;
  // 122 of the 128 bits are kept; six say which kind of UUID it is.
  static constexpr Uuid from_random_words(uint64_t first, uint64_t second) {
    constexpr uint64_t kVersionMask = 0xf000, kVersion4 = 0x4000;
    constexpr uint64_t kVariantMask = uint64_t{3} << 62, kVariant = uint64_t{2} << 62;
    return {(first & ~kVersionMask) | kVersion4, (second & ~kVariantMask) | kVariant};
  }
  // Takes back exactly what high() and low() gave.
  static constexpr Uuid from_stored_words(uint64_t high, uint64_t low) { return {high, low}; }
  static Result<Uuid> parse(std::string_view text);

  constexpr uint64_t high() const { return high_; }
  constexpr uint64_t low() const { return low_; }
  constexpr bool is_nil() const { return high_ == 0 && low_ == 0; }
  constexpr auto operator<=>(const Uuid&) const = default;

  std::string text() const;

 private:
  constexpr Uuid(uint64_t high, uint64_t low) : high_(high), low_(low) {}
  uint64_t high_ = 0;
  uint64_t low_ = 0;
};

}  // namespace tutti

template <class Tag>
struct std::hash<tutti::Id<Tag>> {
  size_t operator()(tutti::Id<Tag> id) const { return std::hash<uint64_t>()(id.value()); }
};
template <>
struct std::hash<tutti::Uuid> {
  // Random already; any of its words will do.
  size_t operator()(const tutti::Uuid& id) const { return id.low() ^ id.high(); }
};

template <class Tag>
struct fmt::formatter<tutti::Id<Tag>> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(tutti::Id<Tag> id, Context& context) const {
    return fmt::formatter<std::string_view>::format(id.text(), context);
  }
};
template <>
struct fmt::formatter<tutti::Uuid> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const tutti::Uuid& id, Context& context) const {
    return fmt::formatter<std::string_view>::format(id.text(), context);
  }
};
