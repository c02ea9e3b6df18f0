#include "train/weights_file.h"

#include <doctest/doctest.h>

#include "train/folder_fixture_test.h"
#include "world/real/real_world.h"

using namespace tutti;

TEST_CASE("a parameter of layers is read layer by layer, and what is missing is named") {
  const TestFolder folder;
  const std::string path = folder / "weights.safetensors";
  RealWorld world;
  const std::vector<SafeTensor> tensors{
      {.name = "h.0.w", .dtype = DType::f32, .shape = {2}, .data = as_bytes("aaaabbbb")},
      {.name = "h.1.w", .dtype = DType::f32, .shape = {2}, .data = as_bytes("ccccdddd")},
      {.name = "last", .dtype = DType::f32, .shape = {1}, .data = as_bytes("eeee")}};
  REQUIRE(world.run(write_safetensors(world.disk(), path, tensors, {})).has_value());
  auto file = world.run(open_safetensors(world.disk(), path));
  REQUIRE(file.has_value());
  const auto read = [&](const char* name, Dims dims) -> Result<std::string> {
    const Parameter parameter{.name = name, .type = {DType::f32, std::move(dims)}, .init = {}};
    std::string to(static_cast<size_t>(parameter.type.bytes()), ' ');
    TRY_DO(read_parameter(**file, parameter, as_mutable_bytes(to).data()));
    return to;
  };
  CHECK(*read("h.*.w", {{"layer", 2}, {"n", 2}}) == "aaaabbbbccccdddd");
  CHECK(*read("last", {{"n", 1}}) == "eeee");
  CHECK(read("h.*.w", {{"layer", 3}, {"n", 2}}).error().text().find("h.2.w") != std::string::npos);
  CHECK(read("h.*.w", {{"layer", 2}, {"n", 1}}).error().code() == Code::invalid);
}
