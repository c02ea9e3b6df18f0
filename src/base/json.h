// JSON: what tools read. Json is nlohmann's value with keys in sorted order, so that the same value
// is always the same text.
//
// Its operators throw when a value is not of the type asked for; use json_get() for anything that
// came from outside.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

using Json = nlohmann::json;

// Deeper nesting is refused: printing and comparing values recurse.
constexpr int kMaxJsonDepth = 200;

// `name` is what an error calls the text: "plan.json:3:14: …". The whole text is one value.
Result<Json> parse_json(std::string_view text, std::string_view name = "JSON");

// One line, or with `indent` spaces per level. Bytes that are not UTF-8 become U+FFFD.
std::string dump_json(const Json& value, int indent = -1);

// "a string", "an object", …
std::string_view json_type_name(const Json& value);

// A member of an object, as bool, a number, std::string or Json. A missing member is not_found, a
// wrong type or a number out of range is invalid.
template <class T>
Result<T> json_get(const Json& object, std::string_view key);

extern template Result<bool> json_get(const Json&, std::string_view);
extern template Result<int> json_get(const Json&, std::string_view);
extern template Result<int64_t> json_get(const Json&, std::string_view);
extern template Result<uint64_t> json_get(const Json&, std::string_view);
extern template Result<double> json_get(const Json&, std::string_view);
extern template Result<std::string> json_get(const Json&, std::string_view);
extern template Result<Json> json_get(const Json&, std::string_view);

}  // namespace tutti
