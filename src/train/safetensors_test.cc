#include "train/safetensors.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "train/folder_fixture_test.h"
#include "world/real/real_world.h"

using namespace tutti;

namespace {

std::vector<uint64_t> shape(std::initializer_list<uint64_t> sizes) { return sizes; }

// A header with these tensors, in front of so many bytes of data.
Result<SafetensorsHeader> decode(std::string_view json, uint64_t data_bytes) {
  std::string text(8, '\0');
  store_le(as_mutable_bytes(text).data(), static_cast<uint64_t>(json.size()));
  text += json;
  return decode_safetensors_header(as_bytes(text), text.size() + data_bytes, "x.safetensors");
}

void check_refused(std::string_view json, uint64_t data_bytes, std::string_view words) {
  CAPTURE(json);
  const auto header = decode(json, data_bytes);
  REQUIRE_FALSE(header.has_value());
  CHECK(header.error().code() == Code::corrupt);
  CHECK_MESSAGE(header.error().text().find(words) != std::string::npos, header.error().text());
  CHECK(header.error().text().find("x.safetensors") != std::string::npos);
}

}  // namespace

TEST_CASE("tensors come back from their file as they were written") {
  const TestFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string bytes = "abcdefgh12345678";
  RealWorld world;
  const std::vector<SafeTensor> tensors{
      {.name = "small", .dtype = DType::u8, .shape = {3}, .data = as_bytes("xyz")},
      {.name = "w", .dtype = DType::f32, .shape = {2, 2}, .data = as_bytes(bytes)}};
  auto written = world.run(write_safetensors(world.disk(), path, tensors, {{"step", "7"}}));
  REQUIRE_MESSAGE(written.has_value(), written.error().text());
  CHECK_FALSE(std::filesystem::exists(path + ".new"));
  auto file = world.run(open_safetensors(world.disk(), path));
  REQUIRE_MESSAGE(file.has_value(), file.error().text());
  CHECK((*file)->metadata().at("step") == "7");
  const auto w = (*file)->tensor("w", DType::f32, shape({2, 2}));
  REQUIRE(w.has_value());
  CHECK(as_text(*w) == bytes);
  CHECK(reinterpret_cast<uintptr_t>(w->data()) % 64 == 0);
  CHECK(as_text(*(*file)->tensor("small", DType::u8, shape({3}))) == "xyz");

  const auto missing = (*file)->tensor("smal", DType::u8, shape({3}));
  CHECK(missing.error().code() == Code::not_found);
  CHECK(missing.error().text().find("'small'") != std::string::npos);
  const auto other = (*file)->tensor("w", DType::f32, shape({4}));
  CHECK(other.error().code() == Code::invalid);
  CHECK(other.error().text().find("f32[2, 2], the model has f32[4]") != std::string::npos);
}

TEST_CASE("a file that was cut short is refused wherever it was cut") {
  const TestFolder folder;
  const std::string path = folder / "a.safetensors";
  RealWorld world;
  const std::vector<SafeTensor> tensors{
      {.name = "w", .dtype = DType::f32, .shape = {2}, .data = as_bytes("12345678")}};
  REQUIRE(world.run(write_safetensors(world.disk(), path, tensors, {})));
  const auto whole = std::filesystem::file_size(path);
  for (auto size = whole; size-- > 0;) {
    std::filesystem::resize_file(path, size);
    auto file = world.run(open_safetensors(world.disk(), path));
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code() == Code::corrupt);
    CHECK(file.error().text().find(path) != std::string::npos);
  }
}

TEST_CASE("data that were changed on the way are refused") {
  const TestFolder folder;
  const std::string path = folder / "a.safetensors";
  RealWorld world;
  const std::vector<SafeTensor> tensors{
      {.name = "w", .dtype = DType::f32, .shape = {2}, .data = as_bytes("12345678")}};
  REQUIRE(world.run(write_safetensors(world.disk(), path, tensors, {})));
  REQUIRE(world.run(open_safetensors(world.disk(), path)));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end);
  file.put('X');
  file.close();
  const auto opened = world.run(open_safetensors(world.disk(), path));
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code() == Code::corrupt);
  CHECK(opened.error().text().find("not what was saved") != std::string::npos);
}

TEST_CASE("headers that make no sense are refused, with what is wrong") {
  REQUIRE(decode(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  check_refused(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})", 8, "dtype is 'F4'");
  check_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not take");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "cut short");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "belong to none");
  check_refused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "whole number");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "[begin, end]");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                    "b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                8, "lies over another");
  check_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a gap before");
  check_refused(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "dtype");
  check_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
                "do not take");
  check_refused(R"({"__metadata__":{"step":3}})", 0, "not a string");
  check_refused("[]", 0, "not an object");
  check_refused("{", 0, "no JSON");
}
