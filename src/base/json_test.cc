#include "base/json.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("a value reads back from its text") {
  const auto value = parse_json(R"({"b": [1, 2.5, null], "a": "x\n"})");
  REQUIRE(value);
  CHECK(dump_json(*value) == R"({"a":"x\n","b":[1,2.5,null]})");
  CHECK(*parse_json(dump_json(*value, 2)) == *value);
}

TEST_CASE("a syntax error names the file, the line and the column") {
  const auto parsed = parse_json("{\n  \"a\": 1,\n  \"b\": oops\n}", "plan.json");
  REQUIRE(!parsed);
  CHECK(parsed.error().code() == Code::invalid);
  CHECK(parsed.error().text().starts_with("plan.json:3:8: syntax error"));
  CHECK(parsed.error().text().find("json.exception") == std::string::npos);
}

TEST_CASE("an empty text, rubbish after the value and bad UTF-8 are refused") {
  for (const auto* text : {"", " ", "1 2", "{} x", "\"\xff\"", "[1,", "{\"a\"}", "'a'", "nul"}) {
    CAPTURE(text);
    CHECK(!parse_json(text));
  }
  CHECK(parse_json("").error().text().starts_with("JSON:1:1: "));
}

TEST_CASE("nesting is bounded") {
  const auto nested = [](int depth) {
    const auto size = static_cast<size_t>(depth);
    return std::string(size, '[') + std::string(size, ']');
  };
  CHECK(parse_json(nested(kMaxJsonDepth)));
  const auto parsed = parse_json(nested(kMaxJsonDepth + 1));
  REQUIRE(!parsed);
  CHECK(parsed.error().text() == "JSON:1:201: nested deeper than 200");
  CHECK(!parse_json(nested(1'000'000)));
  CHECK(parse_json("\"" + std::string(1000, '[') + R"(\"[[")"));
}

TEST_CASE("bytes that are not UTF-8 print as the replacement character") {
  CHECK(dump_json(Json("a\xff")) == "\"a\uFFFD\"");
}

TEST_CASE("members are given in their type") {
  const Json object = {{"flag", true}, {"count", 7}, {"share", 0.5}, {"name", "x"}, {"list", {1}}};
  CHECK(*json_get<bool>(object, "flag") == true);
  CHECK(*json_get<int>(object, "count") == 7);
  CHECK(*json_get<uint64_t>(object, "count") == 7);
  CHECK(*json_get<double>(object, "share") == 0.5);
  CHECK(*json_get<double>(object, "count") == 7.0);
  CHECK(*json_get<std::string>(object, "name") == "x");
  CHECK(json_get<Json>(object, "list")->size() == 1);
}

TEST_CASE("a missing member, a wrong type and a number out of range are told apart") {
  const Json object = {{"name", "x"}, {"big", 5'000'000'000}, {"negative", -1}, {"half", 0.5}};
  CHECK(json_get<int>(object, "nome").error().code() == Code::not_found);
  CHECK(json_get<int>(object, "name").error().text() ==
        "'name' must be a whole number, not a string");
  CHECK(json_get<int>(object, "half").error().text() ==
        "'half' must be a whole number, not a number with a fraction");
  CHECK(json_get<int>(object, "big").error().text() == "'big' is out of range: 5000000000");
  CHECK(json_get<uint64_t>(object, "negative").error().code() == Code::invalid);
  CHECK(json_get<bool>(object, "name").error().code() == Code::invalid);
  CHECK(json_get<int>(Json(3), "x").error().code() == Code::invalid);
}

}  // namespace
}  // namespace tutti
