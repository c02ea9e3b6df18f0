#include "compile/autodiff.h"

#include <algorithm>
#include <set>

#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"

using namespace tutti;

namespace {

// Compares gradients by every floating input with differences of the loss.
void check_gradients(const std::string& text) {
  CAPTURE(text);
  const Graph graph = graph_of(text);
  Names names;
  for (const Input& input : graph.inputs)
    if (is_float(graph.type(input.value).dtype)) names.push_back(input.name);
  auto with = differentiate(graph, "loss", names);
  REQUIRE_MESSAGE(with.has_value(), with.error().text());
  const auto checked = verify(*with);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  CHECK(graph_of(with->text()).text() == with->text());
  const auto inputs = inputs_of(graph);
  const auto results = run(*with, inputs, Precision::wide);
  constexpr double kStep = 1e-5;
  size_t gradient = graph.outputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_float(inputs[i].type.dtype)) continue;
    Array expected{inputs[i].type, {}};
    for (size_t j = 0; j < inputs[i].values.size(); ++j) {
      const auto loss = [&](double step) {
        auto moved = inputs;
        moved[i].values[j] += step;
        return run(graph, std::move(moved), Precision::wide)[0].values[0];
      };
      expected.values.push_back((loss(kStep) - loss(-kStep)) / (2 * kStep));
    }
    CAPTURE(graph.inputs[i].name);
    check_close(results[gradient++], expected, 1e-6);
  }
}

// A loss that weighs every element differently.
std::string weighed(const std::string& inputs, const std::string& ops, const std::string& type) {
  std::string dims;
  for (size_t at = type.find('['); at != std::string::npos && at + 1 < type.size();) {
    const size_t end = type.find('=', at);
    if (end == std::string::npos) break;
    const size_t start = type.find_first_not_of(" ,[", at);
    dims += (dims.empty() ? "\"" : ", \"") + type.substr(start, end - start) + "\"";
    at = type.find(',', end);
  }
  return "graph g(" + inputs + ", %weigh: " + type + ") {\n" + ops +
         "\n  %weighed = mul(%y, %weigh)\n  %loss = sum(%weighed) {dims=[" + dims +
         "]}\n  return %loss as \"loss\"\n}";
}

using Cases = std::vector<std::string>;

Cases unary_cases() {
  Cases all;
  for (const std::string op : {"neg", "abs", "exp", "tanh", "erf", "sin", "cos", "sign", "floor"})
    all.push_back(weighed("%x: f32[n=5]", "%y = " + op + "(%x)", "f32[n=5]"));
  for (const std::string op : {"log", "sqrt", "rsqrt"})
    all.push_back(weighed("%x: f32[n=5]", "%p = exp(%x) %y = " + op + "(%p)", "f32[n=5]"));
  all.push_back(
      weighed("%x: f32[n=5]", "%d = cast(%x) : bf16[n=5] %y = cast(%d) : f32[n=5]", "f32[n=5]"));
  all.push_back(weighed("%x: f32[n=5]", "%y = gelu(%x) {tanh=false}", "f32[n=5]"));
  all.push_back(weighed("%x: f32[n=5]", "%y = gelu(%x) {tanh=true}", "f32[n=5]"));
  return all;
}

Cases binary_cases() {
  Cases all;
  for (const std::string op : {"add", "sub", "mul", "div", "max", "min"})
    all.push_back(weighed("%a: f32[n=5], %b: f32[n=5]", "%y = " + op + "(%a, %b)", "f32[n=5]"));
  all.push_back(weighed("%a: f32[n=5], %b: f32[n=5]", "%p = exp(%a) %y = pow(%p, %b)", "f32[n=5]"));
  all.push_back(
      weighed("%c: bool[n=5], %a: f32[n=5], %b: f32[n=5]", "%y = select(%c, %a, %b)", "f32[n=5]"));
  return all;
}

Cases shape_cases() {
  Cases all;
  const std::string x = "%x: f32[a=2, b=3]";
  all.push_back(weighed(x, "%y = reshape(%x) : f32[c=6]", "f32[c=6]"));
  all.push_back(weighed(x, "%y = transpose(%x) {order=[\"b\", \"a\"]}", "f32[b=3, a=2]"));
  all.push_back(weighed(x, "%y = broadcast(%x) : f32[a=2, n=2, b=3]", "f32[a=2, n=2, b=3]"));
  all.push_back(weighed(x, "%y = slice(%x) {dim=\"b\", start=1, size=2}", "f32[a=2, b=2]"));
  all.push_back(weighed(x, "%y = pad(%x) {dim=\"a\", low=1, high=2}", "f32[a=5, b=3]"));
  all.push_back(
      weighed(x + ", %z: f32[a=2, b=1]", "%y = concat(%x, %z) {dim=\"b\"}", "f32[a=2, b=4]"));
  return all;
}

Cases reduction_cases() {
  Cases all;
  const std::string x = "%x: f32[a=4, b=3]";
  all.push_back(weighed(x, "%y = sum(%x) {dims=[\"a\"]}", "f32[b=3]"));
  all.push_back(weighed(x, "%y = reduce_max(%x) {dims=[\"b\"]}", "f32[a=4]"));
  all.push_back(weighed(x, "%y = cumulative_sum(%x) {dim=\"a\"}", "f32[a=4, b=3]"));
  all.push_back(weighed(x, "%y = softmax(%x) {dim=\"b\"}", "f32[a=4, b=3]"));
  all.push_back(weighed(x + ", %i: i32[n=5]", "%y = gather(%x, %i) {dim=\"a\"}", "f32[n=5, b=3]"));
  all.push_back(weighed("%u: f32[n=5, b=3], %i: i32[n=5]",
                        "%y = scatter_add(%i, %u) {dim=\"a\", size=4}", "f32[a=4, b=3]"));
  all.push_back(weighed("%x: f32[a=4], %z: f32[b=3]", "%y = squared_norm(%x, %z)", "f32[]"));
  return all;
}

Cases product_cases() {
  Cases all;
  all.push_back(weighed("%a: f32[m=2, k=3], %b: f32[k=3, n=4]",
                        "%y = matmul(%a, %b) {over=[\"k\"]}", "f32[m=2, n=4]"));
  all.push_back(weighed("%a: f32[m=2, k=3], %b: f32[n=4, k=3]",
                        "%y = matmul(%a, %b) {over=[\"k\"]}", "f32[m=2, n=4]"));
  all.push_back(weighed("%a: f32[h=2, m=2, k=3], %b: f32[k=3, h=2, n=2]",
                        "%y = matmul(%a, %b) {over=[\"k\"]}", "f32[h=2, m=2, n=2]"));
  all.push_back(weighed("%a: f32[m=2, j=2, k=3], %b: f32[j=2, k=3, n=2, o=2]",
                        "%y = matmul(%a, %b) {over=[\"j\", \"k\"]}", "f32[m=2, n=2, o=2]"));
  return all;
}

Cases norm_cases() {
  Cases all;
  all.push_back(weighed("%x: f32[a=2, c=2, b=5], %s: f32[b=5], %t: f32[b=5]",
                        "%y, %m, %r = layer_norm(%x, %s, %t) {dim=\"b\", epsilon=0.01}",
                        "f32[a=2, c=2, b=5]"));
  all.push_back(weighed("%x: f32[a=3, b=5], %s: f32[b=5]",
                        "%y, %r = rms_norm(%x, %s) {dim=\"b\", epsilon=0.01}", "f32[a=3, b=5]"));
  return all;
}

Cases attention_cases() {
  Cases all;
  const std::string options = R"({causal=true, scale=0.5, query="t", key="u", head="d"})";
  all.push_back(weighed("%q: f32[b=2, t=3, d=2], %k: f32[b=2, u=3, d=2], %v: f32[b=2, u=3, d=2]",
                        "%y, %l = attention(%q, %k, %v) " + options, "f32[b=2, t=3, d=2]"));
  // Fewer queries than keys, and two queries' heads for one of keys.
  all.push_back(
      weighed("%q: f32[t=2, h=1, g=2, d=2], %k: f32[u=4, h=1, d=2], %v: f32[u=4, h=1, d=2]",
              "%y, %l = attention(%q, %k, %v) " + options, "f32[t=2, h=1, g=2, d=2]"));
  return all;
}

Cases loss_cases() {
  Cases all;
  all.push_back(weighed("%x: f32[b=2, t=2, e=3], %w: f32[v=4, e=3], %i: i32[b=2, t=2]",
                        "%y = linear_cross_entropy(%x, %w, %i) {over=\"e\", vocab=\"v\"}",
                        "f32[b=2, t=2]"));
  return all;
}

Cases layer_cases() {
  Cases all;
  for (const std::string reversed : {"false", "true"}) {
    all.push_back(weighed("%x: f32[n=3], %w: f32[layer=4, n=3], %s: f32[n=3]",
                          R"(
  %y, %t = repeat(%x, %w, %s) {carried=1, sliced=1, count=4, stack="layer", reversed=)" +
                              reversed + R"(} body(%x: f32[n=3], %w: f32[n=3], %s: f32[n=3]) {
    %a = mul(%x, %w)
    %b = add(%a, %s)
    %c = tanh(%b)
    %d = mul(%c, %x)
    return %c as "x", %d as "t"
  })",
                          "f32[n=3]"));
    all.push_back(weighed("%x: f32[n=3], %w: f32[layer=4, n=3]",
                          R"(
  %z, %y = repeat(%x, %w) {carried=1, sliced=1, count=4, stack="l", reversed=)" +
                              reversed + R"(} body(%x: f32[n=3], %w: f32[n=3]) {
    %a = mul(%x, %w)
    %c = tanh(%a)
    return %c as "x", %a as "t"
  })",
                          "f32[l=4, n=3]"));
  }
  return all;
}

Cases nested_cases() {
  Cases all;
  all.push_back(weighed("%w: f32[layer=2, part=3, n=2]", R"(
  %zero = constant() {value=0.1} : f32[n=2]
  %y = repeat(%zero, %w) {carried=1, sliced=1, count=2, stack="layer", reversed=false}
    body(%x: f32[n=2], %w: f32[part=3, n=2]) {
    %y = repeat(%x, %w) {carried=1, sliced=1, count=3, stack="part", reversed=false}
    body(%x: f32[n=2], %w: f32[n=2]) {
      %a = add(%x, %w)
      %b = sin(%a)
      return %b as "x"
    }
    return %y as "x"
  })",
                        "f32[n=2]"));
  return all;
}

// What has no gradient: whole numbers and truths, sources, what only a compiled or generating
// model has, and gradients themselves.
const std::set<OpKind> kWithout{OpKind::constant,        OpKind::iota,
                                OpKind::random,          OpKind::logical_not,
                                OpKind::is_finite,       OpKind::logical_and,
                                OpKind::logical_or,      OpKind::shift_right,
                                OpKind::equal,           OpKind::less,
                                OpKind::less_equal,      OpKind::argmax,
                                OpKind::update,          OpKind::fused,
                                OpKind::gelu_grad,       OpKind::layer_norm_grad,
                                OpKind::rms_norm_grad,   OpKind::attention_grad,
                                OpKind::adamw,           OpKind::linear_cross_entropy_grad,
                                OpKind::lane_all_reduce, OpKind::lane_reduce_scatter,
                                OpKind::shard_gather,    OpKind::square_chunks,
                                OpKind::join_chunks,     OpKind::all_reduce,
                                OpKind::all_gather,      OpKind::reduce_scatter,
                                OpKind::all_to_all,      OpKind::own_slice};

void add_kinds(const Graph& graph, std::set<OpKind>& kinds) {
  for (const Node& op : graph.ops) {
    kinds.insert(op.kind);
    if (op.body != nullptr) add_kinds(*op.body, kinds);
  }
}

}  // namespace

TEST_CASE("gradients of operations on one operand are what differences say") {
  for (const std::string& text : unary_cases()) check_gradients(text);
}

TEST_CASE("gradients of operations on two operands are what differences say") {
  for (const std::string& text : binary_cases()) check_gradients(text);
}

TEST_CASE("gradients of changes of shape are what differences say") {
  for (const std::string& text : shape_cases()) check_gradients(text);
}

TEST_CASE("gradients of reductions and of indexing are what differences say") {
  for (const std::string& text : reduction_cases()) check_gradients(text);
}

TEST_CASE("gradients of products are what differences say") {
  for (const std::string& text : product_cases()) check_gradients(text);
}

TEST_CASE("gradients of norms are what differences say") {
  for (const std::string& text : norm_cases()) check_gradients(text);
}

TEST_CASE("gradients of attention are what differences say") {
  for (const std::string& text : attention_cases()) check_gradients(text);
}

TEST_CASE("gradients of the loss of a vocabulary are what differences say") {
  for (const std::string& text : loss_cases()) check_gradients(text);
}

TEST_CASE("gradients go through repeated layers") {
  for (const std::string& text : layer_cases()) check_gradients(text);
}

TEST_CASE("gradients go through layers within layers, and carried values that begin as constants") {
  for (const std::string& text : nested_cases()) check_gradients(text);
}

TEST_CASE("the gradient of every operation is held against differences, or it has none") {
  std::set<OpKind> kinds;
  for (const auto& cases : {unary_cases, binary_cases, shape_cases, reduction_cases, product_cases,
                            norm_cases, attention_cases, loss_cases, layer_cases, nested_cases})
    for (const std::string& text : cases()) add_kinds(graph_of(text), kinds);
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    CAPTURE(op_info(kind).name);
    CHECK((kinds.contains(kind) || kWithout.contains(kind)));
  }
}

TEST_CASE("gradients by inputs can be had without those by weights, and the other way round") {
  const Graph graph = graph_of(R"(graph g(%x: f32[m=2, k=3], %w: f32[k=3, n=4]) {
    %y = matmul(%x, %w) {over=["k"]}
    %z = tanh(%y)
    %loss = sum(%z) {dims=["m", "n"]}
    return %loss as "loss"
  })");
  auto both = differentiate(graph, "loss", {"x", "w"});
  REQUIRE(both.has_value());
  const auto products = [&](const std::string& without) {
    Graph part = *both;
    std::erase_if(part.outputs, [&](const Output& output) { return output.name == without; });
    const Graph left = remove_unused(part);
    return std::ranges::count(left.ops, OpKind::matmul, &Node::kind);
  };
  CHECK(products("") == 3);
  CHECK(products("gradient/x") == 2);
  CHECK(products("gradient/w") == 2);
}

TEST_CASE("gradients of norms and of the loss come in two parts, of which nobody needs both") {
  const Graph graph = graph_of(R"(graph g(%x: f32[t=3, e=4], %s: f32[e=4], %b: f32[e=4],
      %r: f32[e=4], %w: f32[v=5, e=4], %i: i32[t=3]) {
    %y, %m, %d = layer_norm(%x, %s, %b) {dim="e", epsilon=0.1}
    %z, %q = rms_norm(%y, %r) {dim="e", epsilon=0.1}
    %l = linear_cross_entropy(%z, %w, %i) {over="e", vocab="v"}
    %loss = sum(%l) {dims=["t"]}
    return %loss as "loss"
  })");
  auto both = differentiate(graph, "loss", {"x", "s", "b", "r", "w"});
  REQUIRE(both.has_value());
  // Parts of gradients that are left when only some are wanted.
  const auto parts = [&](const Names& wanted) {
    Graph some = *both;
    std::erase_if(some.outputs, [&](const Output& output) {
      return std::ranges::none_of(
          wanted, [&](const std::string& name) { return gradient_name(name) == output.name; });
    });
    Names left;
    for (const Node& op : remove_unused(some).ops)
      if (const auto* part = op.attributes.find<std::string>("part"))
        left.push_back(fmt::format("{} {}", op_info(op.kind).name, *part));
    return left;
  };
  const Names inputs{"linear_cross_entropy_grad input", "rms_norm_grad input",
                     "layer_norm_grad input"};
  CHECK(parts({"x"}) == inputs);
  CHECK(parts({"w"}) == Names{"linear_cross_entropy_grad weights"});
  CHECK(parts({"b"}) == Names{inputs[0], inputs[1], "layer_norm_grad weights"});
  CHECK(parts({"x", "s", "b", "r", "w"}).size() == 6);
  // Who does not ask for weights gets no operations for them to begin with.
  auto of_input = differentiate(graph, "loss", {"x"});
  REQUIRE(of_input.has_value());
  CHECK(of_input->text().find("weights") == std::string::npos);
}

TEST_CASE("what has no gradient is told with the user's line") {
  const Graph graph = graph_of(R"(graph g(%x: f32[n=2], %d: f32[n=2]) {
    %y = gelu_grad(%x, %d) {tanh=false} @"mine.py:7"
    %l = sum(%y) {dims=["n"]}
    return %l as "loss", %y as "y"
  })");
  CHECK(differentiate(graph, "loss", {"x"}).error().text() ==
        "mine.py:7: gelu_grad has no gradient");
  CHECK(differentiate(graph, "y", {"x"}).error().text() ==
        "y is f32[n=2]: gradients are of a single number; take its mean first");
  CHECK(differentiate(graph, "z", {"x"}).error().text() == "the graph has no output z");
  const Graph cached = graph_of(R"(graph g(%c: f32[n=2], %r: f32[n=1], %p: i64[]) {
    %y = update(%c, %r, %p) {dim="n"} @"mine.py:9"
    %l = sum(%y) {dims=["n"]}
    return %l as "loss"
  })");
  CHECK(differentiate(cached, "loss", {"r"}).error().text() ==
        "mine.py:9: update with a cache has no gradient; build the model for training, without "
        "positions");
}
