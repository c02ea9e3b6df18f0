#include "compile/shard/shard.h"

#include "compile/autodiff.h"
#include "compile/shard/shard_fixture_test.h"

using namespace tutti;

namespace {

using Counts = std::map<std::string, int>;

constexpr std::string_view kMlp = R"(graph mlp(%x: f32[batch=4, time=4, embed=3],
    %up: f32[embed=3, hidden=4] state, %bias: f32[hidden=4] state,
    %down: f32[hidden=4, embed=3] state, %scale: f32[embed=3] state) {
  %n, %r = rms_norm(%x, %scale) {dim="embed", epsilon=0.1}
  %h = matmul(%n, %up) {over=["embed"]} @"mlp.py:3"
  %b = broadcast(%bias) : f32[batch=4, time=4, hidden=4]
  %s = add(%h, %b)
  %g = gelu(%s) {tanh=false}
  %d = matmul(%g, %down) {over=["hidden"]} @"mlp.py:4"
  %y = add(%x, %d)
  %z = mul(%y, %y)
  %loss = sum(%z) {dims=["batch", "time", "embed"]}
  return %loss as "loss"
})";

constexpr std::string_view kShardedMlp =
    R"(graph mlp(%x: f32[batch=4, time=2, embed=3], %up: f32[embed=3, hidden=2] state, %bias: f32[hidden=2] state, %down: f32[hidden=2, embed=3] state, %scale: f32[embed=3] state) {
  %0, %1 = rms_norm(%x, %scale) {dim="embed", epsilon=0.1}
      : f32[batch=4, time=2, embed=3], f32[batch=4, time=2]
  %2 = all_gather(%0) {axis="tp", dim="time", ranks=2} : f32[batch=4, time=4, embed=3] @"mlp.py:3"
  %3 = matmul(%2, %up) {over=["embed"]} : f32[batch=4, time=4, hidden=2] @"mlp.py:3"
  %4 = broadcast(%bias) : f32[batch=4, time=4, hidden=2]
  %5 = add(%3, %4) : f32[batch=4, time=4, hidden=2]
  %6 = gelu(%5) {tanh=false} : f32[batch=4, time=4, hidden=2]
  %7 = matmul(%6, %down) {over=["hidden"]} : f32[batch=4, time=4, embed=3] @"mlp.py:4"
  %8 = reduce_scatter(%7) {axis="tp", dim="time", ranks=2} : f32[batch=4, time=2, embed=3]
  %9 = add(%x, %8) : f32[batch=4, time=2, embed=3]
  %10 = mul(%9, %9) : f32[batch=4, time=2, embed=3]
  %11 = sum(%10) {dims=["batch", "time", "embed"]} : f32[]
  %12 = all_reduce(%11) {axis="tp", ranks=2} : f32[]
  return %12 as "loss"
}
)";

// With its gradients; the same on ranks as on one.
void check_like_whole(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules,
                      double tolerance) {
  const ShardedGraph made = sharded(graph, mesh, rules);
  CAPTURE(mesh.text());
  CAPTURE(rules_text(rules));
  CAPTURE(made.graph.text());
  CHECK(graph_of(made.graph.text()).text() == made.graph.text());
  const auto inputs = inputs_of(graph);
  const auto expected = run(graph, inputs, Precision::wide);
  const auto results = run_on_ranks(graph, made, mesh, inputs, Precision::wide);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    check_close(results[i], expected[i], tolerance);
  }
}

Graph with_gradients(std::string_view text, const Names& names) {
  auto with = differentiate(graph_of(text), "loss", names);
  REQUIRE_MESSAGE(with.has_value(), with.error().text());
  return *std::move(with);
}

}  // namespace

TEST_CASE("with tensor and sequence parallelism, ranks gather before a product and scatter after "
          "the next") {
  const ShardMesh mesh = mesh_of("tp=2");
  const ShardedGraph made = sharded(graph_of(kMlp), mesh, preset_rules(mesh));
  CHECK(made.graph.text() == kShardedMlp);
}

TEST_CASE("gradients are summed over ranks once") {
  const Graph graph = with_gradients(kMlp, {"up", "bias", "down", "scale"});
  const ShardMesh mesh = mesh_of("dp=2");
  const ShardedGraph made = sharded(graph, mesh, preset_rules(mesh));
  CHECK(meetings(made.graph) == Counts{{"all_reduce", 5}});
  for (const char* text : {"dp=2", "tp=2", "dp=2,tp=2", "tp=4", "fsdp=2", "dp=2,fsdp=2,tp=2"}) {
    const ShardMesh each = mesh_of(text);
    ShardRules rules = preset_rules(each);
    if (each.find("fsdp") != nullptr) rules = joined_rules({{"embed", {}}}, rules);
    check_like_whole(graph, each, rules, 1e-12);
  }
}
