#include "compile/shard/sharding.h"

#include "compile/shard/reshape_blocks.h"
#include "compile/shard/shard_fixture_test.h"

using namespace tutti;

TEST_CASE("a rank has one range of a dimension, or one of each of its segments") {
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  using Ranges = std::vector<PlaceRange>;
  CHECK(places_of({{"tp"}}, 8, mesh, 1) == Ranges{{4, 4}});
  CHECK(places_of({{"tp"}}, 8, mesh, 2) == Ranges{{0, 4}});
  CHECK(places_of({{"dp", "tp"}}, 8, mesh, 1) == Ranges{{2, 2}});
  CHECK(places_of({{"tp", "dp"}}, 8, mesh, 1) == Ranges{{4, 2}});
  CHECK(places_of({{"tp"}, {4, 2, 2}}, 8, mesh, 1) == Ranges{{2, 2}, {5, 1}, {7, 1}});
  CHECK(places_of({}, 8, mesh, 3) == Ranges{{0, 8}});
}

TEST_CASE("a layout is told with the whole tensor") {
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const Type type{DType::f32, {{"batch", 8}, {"embed", 4}, {"qkv", 12}}};
  const TensorSharding sharding{.dims = {{{"dp"}}, {}, {{"tp"}, {4, 4, 4}}}, .partial = {"pp"}};
  CHECK(sharding_text(type, sharding) == "f32[batch=8/dp, embed=4, qkv=12/tp in 4+4+4] partial pp");
  CHECK(local_type(type, sharding, mesh).text() == "f32[batch=4, embed=4, qkv=6]");
  CHECK(sharding_text(type, {.dims = {{{"dp", "tp"}}, {}, {}}}) ==
        "f32[batch=8/dp/tp, embed=4, qkv=12]");
}

TEST_CASE("a reshape is blocks of dimensions that hold the same elements") {
  const auto blocks_of = [](const Dims& from, const Dims& to) {
    std::string text;
    for (const ReshapeBlock& block : reshape_blocks({DType::f32, from}, {DType::f32, to})) {
      for (const size_t place : block.from) text += from[place].name;
      text += ">";
      for (const size_t place : block.to) text += to[place].name;
      text += " ";
    }
    return text;
  };
  CHECK(blocks_of({{"a", 2}, {"b", 12}}, {{"c", 2}, {"d", 3}, {"e", 4}}) == "a>c b>de ");
  CHECK(blocks_of({{"a", 2}, {"b", 6}}, {{"c", 4}, {"d", 3}}) == "ab>cd ");
  CHECK(blocks_of({{"a", 1}, {"b", 6}}, {{"c", 6}, {"d", 1}, {"e", 1}}) == "b>c ");
  CHECK(blocks_of({{"a", 1}}, {}) == "");
}

TEST_CASE("a split of a block is that of one dimension on each side, or of none") {
  const Type parts{DType::f32, {{"part", 3}, {"heads", 4}, {"head", 2}}};
  const Type whole{DType::f32, {{"qkv", 24}}};
  const std::vector<size_t> all{0, 1, 2};
  const std::vector<size_t> one{0};
  const auto split = [](const Type& type, const std::vector<size_t>& side, int64_t outer,
                        int64_t ranks) {
    const auto found = split_block(type, side, outer, ranks);
    return found ? fmt::format("{} in {}", type.dims[found->place].name, found->segments) : "none";
  };
  CHECK(split(parts, all, 3, 2) == "heads in 1");
  CHECK(split(whole, one, 3, 2) == "qkv in 3");
  CHECK(split(parts, all, 1, 3) == "part in 1");
  CHECK(split(parts, all, 1, 2) == "none");
  CHECK(split(parts, all, 6, 2) == "heads in 2");
  CHECK(split(parts, all, 12, 2) == "head in 1");
  CHECK(split(whole, one, 8, 2) == "none");  // segments of 3
}
