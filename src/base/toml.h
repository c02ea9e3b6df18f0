// TOML: what people write. A TomlReader fills a struct of options and remembers every mistake, so
// that finish() can tell all of them at once, each with file, line and what was expected:
//
//   TRY(TomlReader toml, TomlReader::parse(text, "cluster.toml"));
//   toml.require("name", options.name);       // must be there
//   toml.read("port", options.port);          // left as it is when absent
//   TomlReader tls = toml.table("tls");       // empty when absent
//   tls.read("timeout", options.tls_timeout); // "250ms", "2m30s", or a number of seconds
//   TRY_DO(toml.finish());                    // unknown keys too: "did you mean 'port'?"
//
// Readers of one document share it; each belongs to one thread.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace tutti {

class TomlReader {
 public:
  static Result<TomlReader> parse(std::string_view text, std::string_view file_name);

  // Each says whether it put a value there: false when the key is absent or wrong.
  bool read(std::string_view key, bool& value);
  bool read(std::string_view key, double& value);
  bool read(std::string_view key, std::string& value);
  bool read(std::string_view key, Duration& value);
  bool read(std::string_view key, std::vector<std::string>& value);
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  bool read(std::string_view key, T& value);
  // The same, from `least` to `most`.
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  bool read(std::string_view key, T& value, int64_t least, int64_t most);

  // "64KiB" or a number of bytes.
  bool read_bytes(std::string_view key, uint64_t& value);
  // One of `names`; gives its index.
  bool read_choice(std::string_view key, std::span<const std::string_view> names, size_t& index);

  // The same, where absence is a mistake.
  template <class T>
  bool require(std::string_view key, T& value);

  bool has(std::string_view key) const;
  bool has_string(std::string_view key) const;
  bool has_array(std::string_view key) const;
  bool has_table(std::string_view key) const;
  // Keys in sorted order, for tables whose keys are names people choose.
  std::vector<std::string> keys() const;
  // Where the key was written first, to put names into the order people gave them; all zero when
  // it is absent.
  struct Place {
    uint32_t line;
    uint32_t column;
    auto operator<=>(const Place&) const = default;
  };
  Place place(std::string_view key) const;

  // [key]: a reader of nothing when absent.
  TomlReader table(std::string_view key);
  // [[key]]: one reader each.
  std::vector<TomlReader> tables(std::string_view key);

  // Adds a mistake the caller found: complain("port", "is taken by the head"). About an absent key
  // it names the line of the table. The key is then not reported as unknown besides.
  void complain(std::string_view key, std::string_view what);

  // All mistakes of the whole document until now, keys that nobody asked for among them.
  Result<void> finish() const;

 private:
  struct Document;
  struct Table;
  TomlReader(std::shared_ptr<Document> document, Table* table);

  struct Whole {
    bool found;
    int64_t value;
  };
  Whole read_whole(std::string_view key, int64_t least, int64_t most);

  std::shared_ptr<Document> document_;
  Table* table_;  // owned by the document
};

template <std::integral T>
  requires(!std::same_as<T, bool>)
bool TomlReader::read(std::string_view key, T& value, int64_t least, int64_t most) {
  const Whole whole = read_whole(key, least, most);
  if (whole.found) value = static_cast<T>(whole.value);
  return whole.found;
}

template <std::integral T>
  requires(!std::same_as<T, bool>)
bool TomlReader::read(std::string_view key, T& value) {
  // TOML's integers are signed 64-bit; what does not fit both is out of range.
  constexpr int64_t least = std::is_signed_v<T> ? int64_t{std::numeric_limits<T>::min()} : 0;
  constexpr int64_t most = sizeof(T) < sizeof(int64_t)
                               ? static_cast<int64_t>(std::numeric_limits<T>::max())
                               : std::numeric_limits<int64_t>::max();
  return read(key, value, least, most);
}

template <class T>
bool TomlReader::require(std::string_view key, T& value) {
  if (!has(key)) complain(key, "is missing");
  return read(key, value);
}

}  // namespace tutti
