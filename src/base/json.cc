#include "base/json.h"

#include <algorithm>
#include <concepts>
#include <utility>

namespace tutti {
namespace {

struct Position {
  size_t line;
  size_t column;
};

Position position_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = static_cast<size_t>(std::ranges::count(before, '\n'));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {line + 1, offset - line_start + 1};
}

std::unexpected<Error> fail_at(std::string_view name, std::string_view text, size_t offset,
                               std::string_view why) {
  const Position at = position_of(text, offset);
  return fail(Code::invalid, "{}:{}:{}: {}", name, at.line, at.column, why);
}

// Where nesting passes kMaxJsonDepth, or npos.
size_t find_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return at;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …" without what
// we say ourselves.
std::string_view reason_of(std::string_view what) {
  const size_t column = what.find("column ");
  const size_t colon = column == std::string_view::npos ? column : what.find(": ", column);
  return colon == std::string_view::npos ? what : what.substr(colon + 2);
}

std::unexpected<Error> wrong_type(std::string_view key, std::string_view wanted,
                                  const Json& value) {
  return fail(Code::invalid, "'{}' must be {}, not {}", key, wanted, json_type_name(value));
}

Result<bool> convert(const Json& value, std::string_view key, std::type_identity<bool>) {
  if (!value.is_boolean()) return wrong_type(key, "true or false", value);
  return value.get<bool>();
}

template <std::integral T>
Result<T> convert(const Json& value, std::string_view key, std::type_identity<T>) {
  if (!value.is_number_integer()) return wrong_type(key, "a whole number", value);
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                               : std::in_range<T>(value.get<int64_t>());
  if (!fits) return fail(Code::invalid, "'{}' is out of range: {}", key, value.dump());
  return value.get<T>();
}

Result<double> convert(const Json& value, std::string_view key, std::type_identity<double>) {
  if (!value.is_number()) return wrong_type(key, "a number", value);
  return value.get<double>();
}

Result<std::string> convert(const Json& value, std::string_view key,
                            std::type_identity<std::string>) {
  if (!value.is_string()) return wrong_type(key, "a string", value);
  return value.get<std::string>();
}

Result<Json> convert(const Json& value, std::string_view, std::type_identity<Json>) {
  return value;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view name) {
  if (const size_t at = find_too_deep(text); at != std::string_view::npos) {
    return fail_at(name, text, at, fmt::format("nested deeper than {}", kMaxJsonDepth));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t offset = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    return fail_at(name, text, offset, reason_of(error.what()));
  } catch (const Json::exception& error) {
    return fail(Code::invalid, "{}: {}", name, error.what());
  }
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string_view json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "a whole number";
    case Json::value_t::number_float: return "a number with a fraction";
    case Json::value_t::binary: return "binary";
    case Json::value_t::discarded: return "nothing";
  }
  return "nothing";
}

template <class T>
Result<T> json_get(const Json& object, std::string_view key) {
  if (!object.is_object()) return wrong_type(key, "in an object", object);
  const auto found = object.find(key);
  if (found == object.end()) return fail(Code::not_found, "'{}' is missing", key);
  return convert(*found, key, std::type_identity<T>());
}

template Result<bool> json_get(const Json&, std::string_view);
template Result<int> json_get(const Json&, std::string_view);
template Result<int64_t> json_get(const Json&, std::string_view);
template Result<uint64_t> json_get(const Json&, std::string_view);
template Result<double> json_get(const Json&, std::string_view);
template Result<std::string> json_get(const Json&, std::string_view);
template Result<Json> json_get(const Json&, std::string_view);

}  // namespace tutti
