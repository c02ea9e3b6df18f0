#include "train/model_part.h"

#include "compile/shard/fused_gpt_test.h"
#include "compile/shard/shard_fixture_test.h"
#include "train/model_fixture_test.h"

using namespace tutti;

TEST_CASE("runs of a part are its places in the whole, in its order") {
  const ShardMesh mesh = mesh_of("x=2,y=2");
  const Type whole{DType::f32, {{"a", 2}, {"b", 12}, {"c", 4}, {"d", 3}}};
  const TensorSharding kWays[] = {
      whole_sharding(whole),
      {.dims = {{{"x"}}, {}, {}, {}}},
      {.dims = {{}, {{"y"}, {4, 8}}, {}, {}}},
      {.dims = {{}, {{"y"}, {4, 8}}, {{"x"}}, {}}},
      {.dims = {{}, {}, {{"x", "y"}}, {}}},
  };
  for (const TensorSharding& lies : kWays) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      CAPTURE(sharding_text(whole, lies));
      CAPTURE(rank);
      const LocalTensor part = local_tensor("w", whole, lies, mesh, rank);
      const auto places = places_in_whole(part);
      const auto elements = part.local.elements();
      for (const auto& [first, count] :
           {std::pair{int64_t{0}, elements}, {elements / 3, elements / 2}}) {
        std::vector<size_t> visited;
        each_run(part, first, count, [&](int64_t in_part, int64_t in_whole, int64_t some) {
          CHECK(in_part == first + std::ssize(visited));
          for (int64_t i = 0; i < some; ++i) visited.push_back(static_cast<size_t>(in_whole + i));
        });
        const auto begin = places.begin() + first;
        CHECK(visited == std::vector<size_t>(begin, begin + count));
      }
    }
  }
}

TEST_CASE("a rank's part of a model is given all data, and its weights lie as rules say") {
  const Model model = model_of(tiny_gpt(2, {.batch = 2, .time = 4, .heads = 2}));
  const ShardMesh mesh = mesh_of("tp=2");
  const auto part =
      part_of_model(model.graph, model, {.mesh = mesh, .rules = preset_rules(mesh), .rank = 1});
  REQUIRE_MESSAGE(part.has_value(), part.error().text());
  for (const Input& input : part->graph.inputs)
    if (input.role == InputRole::data)
      CHECK(part->graph.type(input.value) ==
            model.graph.type(model.graph.input(input.name)->value));
  const std::vector<Parameter> own = part->own(model);
  int64_t smaller = 0;
  for (size_t i = 0; i < own.size(); ++i) smaller += own[i].type != model.parameters[i].type;
  CHECK(smaller > 0);
  CHECK(smaller < std::ssize(own));
}

TEST_CASE("heads that do not divide are refused, though no weight has such a dimension") {
  const Model model = FusedGpt({.key_heads = 2}).model();
  const ShardMesh mesh = mesh_of("tp=4");
  const auto part = part_of_model(model.graph, model, {.mesh = mesh, .rules = preset_rules(mesh)});
  REQUIRE_FALSE(part.has_value());
  CHECK(part.error().text().starts_with("heads=2 does not divide by the 4 ranks of tp; "));
}
