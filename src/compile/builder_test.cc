#include "compile/builder.h"

#include "compile/graph_fixture_test.h"

using namespace tutti;

TEST_CASE("operands are matched by the names of their dimensions") {
  Builder b("g");
  const Tensor x = b.input("x", {DType::f32, {{"batch", 2}, {"embed", 3}}});
  const Tensor bias = b.input("bias", {DType::f32, {{"embed", 3}}});
  const Tensor turned = b.input("turned", {DType::f32, {{"embed", 3}, {"batch", 2}}});
  b.output("y", (x + bias) * turned * 2);
  const auto graph = b.build();
  REQUIRE(graph.has_value());
  CHECK(graph->text() ==
        R"(graph g(%x: f32[batch=2, embed=3], %bias: f32[embed=3], %turned: f32[embed=3, batch=2]) {
  %0 = broadcast(%bias) : f32[batch=2, embed=3]
  %1 = add(%x, %0) : f32[batch=2, embed=3]
  %2 = transpose(%turned) {order=["batch", "embed"]} : f32[batch=2, embed=3]
  %3 = mul(%1, %2) : f32[batch=2, embed=3]
  %4 = constant() {value=2.0} : f32[]
  %5 = broadcast(%4) : f32[batch=2, embed=3]
  %6 = mul(%3, %5) : f32[batch=2, embed=3]
  return %6 as "y"
}
)");
}

TEST_CASE("the first mistake is told with both operands and the user's line") {
  Builder b("g");
  const Tensor x = b.input("x", {DType::f32, {{"batch", 2}, {"embed", 3}}});
  const Tensor y = b.input("y", {DType::f32, {{"embed", 4}}});
  b.at("gpt.py:12");
  const Tensor sum = x + y;
  CHECK(!sum);
  b.at("gpt.py:13");
  b.output("z", b.gelu(sum));
  const auto graph = b.build();
  REQUIRE(!graph.has_value());
  CHECK(graph.error().text() ==
        "gpt.py:12: add: f32[batch=2, embed=3] and f32[embed=4] have different sizes of embed");
}

TEST_CASE("what has no meaning is refused where it is written") {
  const auto said = [](const auto& make) {
    Builder b("g");
    b.at("m.py:3");
    CHECK(!make(b, b.input("x", {DType::i32, {{"n", 2}, {"k", 3}}})));
    return b.build().error().text();
  };
  CHECK(
      said([](Builder& b, const Tensor& x) { return b.mean(x, {"n"}); }) ==
      "m.py:3: mean: i32[n=2, k=3] is of whole numbers, and their mean may lie between; cast it to "
      "f32 first");
  CHECK(said([](Builder& b, const Tensor& x) {
          return b.sum(x, {"n", "n"});
        }).find("sum: n is named more than once") != std::string::npos);
  CHECK(said([](Builder& b, const Tensor& x) {
          const Tensor y = b.cast(x, DType::f32);
          return b.matmul(y, y, {"k", "k"});
        }).find("matmul: k is named more than once") != std::string::npos);
}

TEST_CASE("a repeated body may use what is outside of it") {
  Builder b("g");
  const Tensor x = b.input("x", {DType::f32, {{"n", 2}}});
  const Tensor w = b.state("w", {DType::f32, {{"layer", 3}, {"n", 2}}});
  const Tensor shift = b.input("shift", {DType::f32, {{"n", 2}}});
  const auto y = b.repeat(
      {.count = 3}, {x}, {w},
      [&](Builder& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& parts) {
        const Tensor next = carried[0] * parts[0] + shift;
        return std::vector<Tensor>{body.unary(OpKind::tanh, next) + shift};
      });
  REQUIRE(y.size() == 1);
  b.output("y", y[0]);
  const auto graph = b.build();
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  const auto checked = verify(*graph);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  CHECK(graph->ops[0].operands.size() == 3);
  const auto result = run(*graph, {{graph->type(0), {0.5, -0.5}},
                                   {graph->type(1), {1, 2, 3, 4, 5, 6}},
                                   {graph->type(2), {0.25, 0.5}}});
  double left = 0.5;
  for (const double weight : {1.0, 3.0, 5.0}) left = std::tanh(left * weight + 0.25) + 0.25;
  CHECK(result[0].values[0] == doctest::Approx(left));
}
