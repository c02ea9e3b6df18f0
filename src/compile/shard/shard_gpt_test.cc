#include "compile/passes/rematerialise.h"
#include "compile/shard/fused_gpt_test.h"
#include "compile/shard/shard_fixture_test.h"
#include "compile/tiny_gpt_test.h"

using namespace tutti;

namespace {

using Counts = std::map<std::string, int>;

void check_step(const Graph& step, const ShardMesh& mesh, const ShardRules& rules,
                double tolerance) {
  CAPTURE(mesh.text());
  CAPTURE(rules_text(rules));
  const ShardedGraph made = sharded(step, mesh, rules);
  CHECK(graph_of(made.graph.text()).text() == made.graph.text());
  const auto inputs = step_inputs(step);
  const auto expected = run(step, inputs, Precision::wide);
  const auto results = run_on_ranks(step, made, mesh, inputs, Precision::wide);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(step.outputs[i].name);
    check_close(results[i], expected[i], tolerance);
  }
}

const Node& repeat_of(const Graph& graph, size_t which) {
  for (const Node& op : graph.ops)
    if (op.kind == OpKind::repeat && which-- == 0) return op;
  FAIL("there is no such repeat");
  return graph.ops.front();
}

}  // namespace

TEST_CASE("a GPT's step on any mesh is the step on one rank") {
  const Graph step = step_of(FusedGpt({}).model());
  for (const char* text : {"dp=2", "tp=2", "dp=2,tp=2", "tp=4", "dp=4", "fsdp=2", "fsdp=2,tp=2",
                           "dp=2,fsdp=2,tp=2", "tp=2,dp=2"}) {
    const ShardMesh mesh = mesh_of(text);
    check_step(step, mesh, preset_rules(mesh), 1e-9);
  }
  for (const char* rules :
       {"time=", "vocab=tp", "hidden=tp,time=,heads=", "time=tp", "embed=tp",
        "vocab=tp,time=,heads=dp", "batch=tp,hidden=dp", "qkv=tp,heads=", "head=tp", "layer=tp"}) {
    const ShardMesh mesh = mesh_of("dp=2,tp=2");
    check_step(step, mesh, joined_rules(rules_of(rules, mesh), preset_rules(mesh)), 1e-9);
  }
}

TEST_CASE("groups of queries that share keys are split as their keys are") {
  const Graph step = step_of(FusedGpt({.key_heads = 2, .group = 2}).model());
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  check_step(step, mesh, preset_rules(mesh), 1e-9);
  CHECK(meetings(*repeat_of(sharded(step, mesh, preset_rules(mesh)).graph, 0).body) ==
        Counts{{"all_gather", 2}, {"reduce_scatter", 2}});
}

TEST_CASE("a layer's round under tensor parallelism gathers twice and scatters twice") {
  const Graph step = step_of(FusedGpt({}).model());
  for (const char* text : {"tp=2", "dp=2,tp=2", "tp=4"}) {
    const ShardMesh mesh = mesh_of(text);
    const Graph made = sharded(step, mesh, preset_rules(mesh)).graph;
    CAPTURE(made.text());
    CHECK(meetings(*repeat_of(made, 0).body) == Counts{{"all_gather", 2}, {"reduce_scatter", 2}});
    // Backwards, what the products' weights are multiplied with is gathered as well.
    CHECK(meetings(*repeat_of(made, 1).body) == Counts{{"all_gather", 4}, {"reduce_scatter", 2}});
  }
  const ShardMesh mesh = mesh_of("tp=2");
  const Graph made = sharded(step, mesh, rules_of("heads=tp,hidden=tp", mesh)).graph;
  CHECK(meetings(*repeat_of(made, 0).body) == Counts{{"all_reduce", 2}});
  CHECK(meetings(*repeat_of(made, 1).body) == Counts{{"all_reduce", 2}});
}

TEST_CASE("under data parallelism rounds do not meet, and each gradient is summed once") {
  const Model model = FusedGpt({}).model();
  const ShardMesh mesh = mesh_of("dp=2");
  const Graph made = sharded(step_of(model), mesh, preset_rules(mesh)).graph;
  CHECK(meetings(*repeat_of(made, 0).body) == Counts{});
  CHECK(meetings(*repeat_of(made, 1).body) == Counts{});
  CHECK(meetings(made) ==
        Counts{{"all_reduce", static_cast<int>(model.parameters.size()) + 1}});  // and the loss
}

TEST_CASE("the parts of queries, keys and values are split each by itself, and so are moments") {
  const Graph step = step_of(FusedGpt({}).model());
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const ShardedGraph made = sharded(step, mesh, preset_rules(mesh));
  std::map<std::string, LocalTensor> states;
  for (LocalTensor& each : local_inputs(step, made, mesh, 1)) {
    const std::string name = each.name;
    states.emplace(name, std::move(each));
  }
  const LocalTensor& weight = states.at("h.*.c_attn.weight");
  CHECK(sharding_text(weight.whole, weight.sharding) ==
        "f32[layer=2, embed=8, qkv=24/tp in 8+8+8]");
  CHECK(weight.local.text() == "f32[layer=2, embed=8, qkv=12]");
  CHECK(weight.places[2] == std::vector<PlaceRange>{{4, 4}, {12, 4}, {20, 4}});
  CHECK(states.at("first/h.*.c_attn.weight").sharding == weight.sharding);
  CHECK(states.at("second/h.*.c_attn.weight").local == weight.local);
  const LocalTensor& out = states.at("h.*.c_proj.weight");
  CHECK(sharding_text(out.whole, out.sharding) == "f32[layer=2, mixed=8/tp, embed=8]");
  CHECK(out.places[1] == std::vector<PlaceRange>{{4, 4}});
  const LocalTensor& tokens = states.at("tokens");
  CHECK(sharding_text(tokens.whole, tokens.sharding) == "i32[batch=4/dp, time=4/tp]");
}

TEST_CASE("weights with a dimension of their own for the three parts are split along heads") {
  const Graph graph = tiny_gpt(2, {.batch = 2, .time = 4, .heads = 2});
  Model model{.graph = graph, .parameters = {}};
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state)
      model.parameters.push_back({.name = input.name, .type = graph.type(input.value), .init = {}});
  const Graph step = step_of(model);
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  check_step(step, mesh, preset_rules(mesh), 1e-9);
  const Graph made = sharded(step, mesh, preset_rules(mesh)).graph;
  CHECK(meetings(*repeat_of(made, 0).body) == Counts{{"all_gather", 2}, {"reduce_scatter", 2}});
}

TEST_CASE("a rank's own graph has slices where it has its part") {
  const Graph step = step_of(FusedGpt({}).model());
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const ShardedGraph made =
      sharded(step, mesh, joined_rules({{"vocab", {"tp"}}}, preset_rules(mesh)));
  const auto inputs = step_inputs(step);
  const auto together = run_on_ranks(step, made, mesh, inputs);
  std::vector<Graph> graphs;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    graphs.push_back(local_graph(made.graph, mesh, rank));
  CHECK(made.graph.text().find("own_slice") != std::string::npos);
  for (const Graph& graph : graphs) CHECK(graph.text().find("own_slice") == std::string::npos);
  CHECK(graphs[0].text() != graphs[1].text());
  const auto alone = run_on_ranks(step, made, mesh, inputs, Precision::typed, graphs);
  for (size_t i = 0; i < alone.size(); ++i) CHECK(alone[i].values == together[i].values);
}

TEST_CASE("what ranks meet for is not computed again to save memory") {
  const ShardMesh mesh = mesh_of("tp=2");
  const Graph step = step_of(FusedGpt({}).model());
  Graph kept = optimize(sharded(step, mesh, preset_rules(mesh)).graph, "remove-unused");
  const auto before = meetings(kept);
  int again = 0;
  for (auto choices = find_recomputations(kept); !choices.empty() && again < 20; ++again) {
    kept = rematerialise(kept, choices.front());
    choices = find_recomputations(kept);
  }
  CHECK(again > 0);
  CHECK(meetings(kept) == before);
}
