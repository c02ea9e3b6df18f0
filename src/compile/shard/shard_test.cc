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
    R"(graph mlp(%x: f32[batch=4, time=2, embed=3], %up: f32[embed=3, hidden=2] state, )"
    R"(%bias: f32[hidden=2] state, %down: f32[hidden=2, embed=3] state, )"
    R"(%scale: f32[embed=3] state) {
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

TEST_CASE(
    "with tensor and sequence parallelism, ranks gather before a product and scatter after "
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

TEST_CASE("what does not divide is refused, with the dimension and whose it is") {
  const auto error_of = [](std::string_view text, std::string_view rules, std::string_view mesh) {
    const ShardMesh its = mesh_of(mesh);
    const auto made = shard(graph_of(text), its, rules_of(rules, its));
    REQUIRE(!made.has_value());
    return made.error().text();
  };
  CHECK(error_of(kMlp, "hidden=tp", "tp=3") ==
        "hidden=4 of state up does not divide by the 3 ranks of tp; make it a multiple, choose "
        "another mesh, or leave it whole with the rule hidden=");
  CHECK(error_of(R"(graph g(%x: f32[batch=4, qkv=6]) {
    %y = reshape(%x) : f32[batch=4, heads=3, head=2] @"a.py:7"
    return %y as "y" })",
                 "heads=tp", "tp=2") ==
        "a.py:7: f32[batch=4, qkv=6] is split as f32[batch=4, heads=3, head=2]: heads=3 does not "
        "divide by the 2 ranks of tp; make it a multiple, choose another mesh, or leave it whole "
        "with the rule heads=");
  CHECK(error_of("graph g(%x: f32[n=2]) { %y = own_slice(%x) {axis=\"tp\", dim=\"n\", ranks=2} "
                 "@\"a.py:1\" return %y as \"y\" }",
                 "", "tp=2") ==
        "own_slice of a.py:1 is not for a graph that is to be sharded: begin with it as it was "
        "traced");
}

TEST_CASE("a gather above the limit is refused, with the line and both layouts") {
  const Graph graph = graph_of(R"(graph g(%x: f32[batch=4, time=4, embed=6]) {
    %y = softmax(%x) {dim="embed"} @"a.py:3"
    return %y as "y" })");
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const ShardRules rules = rules_of("batch=dp,embed=tp", mesh);
  CHECK(shard(graph, mesh, rules, {.reshard_limit = 192}).has_value());
  CHECK(shard(graph, mesh, rules, {.reshard_limit = 191}).error().text() ==
        "a.py:3: f32[batch=4/dp, time=4, embed=6/tp] is needed as f32[batch=4/dp, time=4, "
        "embed=6]: that gathers 192 B on every rank, more than the 191 B of the limit; split what "
        "needs it by a rule, or allow more");
}

TEST_CASE("an axis that moves from one dimension to another is one exchange") {
  const Graph graph = graph_of(R"(graph g(%x: f32[heads=4, time=4]) {
    %y = softmax(%x) {dim="time"}
    %t = transpose(%y) {order=["time", "heads"]}
    %z = softmax(%t) {dim="heads"}
    return %z as "z" })");
  const ShardMesh mesh = mesh_of("sp=2");
  const ShardedGraph made = sharded(graph, mesh, rules_of("time=sp,heads=sp", mesh));
  CHECK(meetings(made.graph) == Counts{{"all_to_all", 2}});
  check_like_whole(graph, mesh, rules_of("time=sp,heads=sp", mesh), 1e-12);
}

TEST_CASE("a table that is split by rows is looked up by all, each for its rows") {
  const Graph graph = graph_of(R"(graph g(%w: f32[vocab=4, embed=2] state, %i: i32[time=2]) {
    %y = gather(%w, %i) {dim="vocab"}
    return %y as "y" })");
  const ShardMesh mesh = mesh_of("tp=2");
  CHECK(sharded(graph, mesh, rules_of("vocab=tp", mesh)).graph.text() ==
        R"(graph g(%w: f32[vocab=2, embed=2] state, %i: i32[time=2]) {
  %0 = iota() {dim="part"} : i64[part=2]
  %1 = own_slice(%0) {axis="tp", dim="part", ranks=2} : i64[part=1]
  %2 = reshape(%1) : i64[]
  %3 = constant() {value=2.0} : i64[]
  %4 = mul(%2, %3) : i64[]
  %5 = broadcast(%4) : i64[time=2]
  %6 = cast(%i) : i64[time=2]
  %7 = sub(%6, %5) : i64[time=2]
  %8 = constant() {value=0.0} : i64[time=2]
  %9 = less_equal(%8, %7) : bool[time=2]
  %10 = constant() {value=2.0} : i64[time=2]
  %11 = less(%7, %10) : bool[time=2]
  %12 = and(%9, %11) : bool[time=2]
  %13 = select(%12, %7, %8) : i64[time=2]
  %14 = gather(%w, %13) {dim="vocab"} : f32[time=2, embed=2]
  %15 = constant() {value=0.0} : f32[time=2, embed=2]
  %16 = broadcast(%12) : bool[time=2, embed=2]
  %17 = select(%16, %14, %15) : f32[time=2, embed=2]
  %18 = all_reduce(%17) {axis="tp", ranks=2} : f32[time=2, embed=2]
  return %18 as "y"
}
)");
  check_like_whole(graph, mesh, rules_of("vocab=tp", mesh), 0);
  check_like_whole(graph, mesh_of("a=2,b=2"), {{"vocab", {"b", "a"}}}, 0);
}

TEST_CASE("a sum stays partial for one reader, and for several is summed before the first") {
  const ShardMesh mesh = mesh_of("dp=2");
  const auto meetings_of = [&](std::string_view returned) {
    const Graph graph = graph_of(fmt::format(R"(graph g(%x: f32[batch=4, n=2]) {{
      %s = sum(%x) {{dims=["batch"]}}
      %twice = add(%s, %s)
      %minus = neg(%s)
      %t = tanh(%s)
      %minus_minus = neg(%minus)
      return {} }})",
                                             returned));
    check_like_whole(graph, mesh, rules_of("batch=dp", mesh), 1e-12);
    return meetings(sharded(graph, mesh, rules_of("batch=dp", mesh)).graph);
  };
  CHECK(meetings_of(R"(%minus_minus as "y")") == Counts{{"all_reduce", 1}});
  CHECK(meetings_of(R"(%minus as "y", %t as "z", %twice as "w")") == Counts{{"all_reduce", 1}});
}

TEST_CASE("a dimension that is split into parts with heads lies in as many segments") {
  const Graph graph = with_gradients(R"(graph g(%x: f32[batch=2, embed=3],
      %w: f32[embed=3, qkv=24] state) {
    %y = matmul(%x, %w) {over=["embed"]}
    %z = reshape(%y) : f32[batch=2, part=3, heads=4, head=2]
    %s = softmax(%z) {dim="part"}
    %q = mul(%s, %z)
    %loss = sum(%q) {dims=["batch", "part", "heads", "head"]}
    return %loss as "loss" })",
                                     {"w"});
  const ShardMesh mesh = mesh_of("tp=4");
  const ShardedGraph made = sharded(graph, mesh, rules_of("heads=tp", mesh));
  CHECK(sharding_text(graph.type(graph.inputs[1].value), made.inputs[1]) ==
        "f32[embed=3, qkv=24/tp in 8+8+8]");
  CHECK(meetings(made.graph) == Counts{{"all_reduce", 1}});
  check_like_whole(graph, mesh, rules_of("heads=tp", mesh), 1e-12);
}

TEST_CASE("attention that does not look back is split by queries too") {
  const Graph graph = with_gradients(R"(graph g(%q: f32[batch=2, heads=2, time=4, head=3],
      %k: f32[batch=2, heads=2, keys=4, head=3], %v: f32[batch=2, heads=2, keys=4, head=3]) {
    %y, %l = attention(%q, %k, %v) {causal=false, head="head", key="keys", query="time", scale=0.5}
    %z = mul(%y, %y)
    %loss = sum(%z) {dims=["batch", "heads", "time", "head"]}
    return %loss as "loss" })",
                                     {"q", "k", "v"});
  const ShardMesh mesh = mesh_of("dp=2,cp=2");
  const ShardRules rules = rules_of("batch=dp,time=cp,keys=cp,head=dp", mesh);
  // Keys and values, once for both directions; what comes of them back; and the loss.
  CHECK(meetings(sharded(graph, mesh, rules).graph) ==
        Counts{{"all_gather", 2}, {"all_reduce", 2}, {"reduce_scatter", 2}});
  check_like_whole(graph, mesh, rules, 1e-12);
}

TEST_CASE("caches are split by heads and by sequences, each with its place") {
  const Graph graph = graph_of(R"(graph g(%cache: f32[batch=2, keys=6, heads=2, head=3] state,
      %x: f32[batch=2, time=2, heads=2, head=3], %position: i64[batch=2]) {
    %rows = reshape(%x) : f32[batch=2, keys=2, heads=2, head=3]
    %next = update(%cache, %rows, %position) {dim="keys"}
    %y, %l = attention(%x, %next, %next, %position)
        {causal=true, head="head", key="keys", query="time", scale=0.5}
    return %next as "cache", %y as "y" })");
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  const ShardRules rules = rules_of("batch=dp,heads=tp,time=tp,keys=tp", mesh);
  CHECK(meetings(sharded(graph, mesh, rules).graph).empty());
  check_like_whole(graph, mesh, rules, 0);
}

TEST_CASE("random bits are those of the place in the whole tensor") {
  const Graph graph = graph_of(R"(graph g(%s: i64[]) {
    %r = random(%s) {seed=3, stream="drop"} : u32[batch=4, time=6]
    %y = cast(%r) : f32[batch=4, time=6]
    return %y as "y" })");
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  check_like_whole(graph, mesh, rules_of("batch=dp,time=tp", mesh), 0);
}

TEST_CASE("sums of several rounds are summed over ranks behind the last") {
  const Graph graph = graph_of(R"(graph g(%x: f32[atom=3, batch=4, n=2]) {
    %zero = constant() {value=0.0} : f32[n=2]
    %sum = repeat(%zero, %x) {carried=1, count=3, reversed=false, sliced=1, stack="atom"}
    body(%sum: f32[n=2], %x: f32[batch=4, n=2]) {
      %s = sum(%x) {dims=["batch"]}
      %next = add(%sum, %s)
      return %next as "sum"
    }
    return %sum as "sum" })");
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  CHECK(sharded(graph, mesh, rules_of("batch=dp", mesh)).graph.text() ==
        R"(graph g(%x: f32[atom=3, batch=2, n=2]) {
  %0 = constant() {value=0.0} : f32[n=2]
  %1 = repeat(%0, %x) {carried=1, count=3, reversed=false, sliced=1, stack="atom"} : f32[n=2]
  body(%sum: f32[n=2], %x: f32[batch=2, n=2]) {
    %0 = sum(%x) {dims=["batch"]} : f32[n=2]
    %1 = add(%sum, %0) : f32[n=2]
    return %1 as "sum"
  }
  %2 = all_reduce(%1) {axis="dp", ranks=2} : f32[n=2]
  return %2 as "sum"
}
)");
  check_like_whole(graph, mesh, rules_of("batch=dp", mesh), 1e-12);
  // What begins otherwise than with zero is not summed as often as there are ranks.
  Graph other = graph;
  other.ops[0].attributes.set("value", 1.0);
  check_like_whole(other, mesh, rules_of("batch=dp", mesh), 1e-12);
}
