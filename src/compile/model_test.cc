#include "compile/model.h"

#include <algorithm>

#include "compile/graph_fixture_test.h"

using namespace tutti;

namespace {

const Dim kBatch{"batch", 2};
const Dim kEmbed{"embed", 3};

Model built(ModelBuilder& m) {
  auto model = m.build();
  REQUIRE_MESSAGE(model.has_value(), model.error().text());
  const auto checked = verify(model->graph);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  return *std::move(model);
}

std::string mistake(ModelBuilder& m) {
  const auto model = m.build();
  REQUIRE(!model.has_value());
  return model.error().text();
}

// x times a weight plus a shift, that many times.
Model scaled(int64_t layers) {
  ModelBuilder m("scaled");
  const Tensor x = m.input("x", {DType::f32, {kBatch, kEmbed}});
  const Tensor shift = m.parameter("shift", {kEmbed}, kZeros, false);
  const Tensor y = m.layers(layers, "blocks", x, [&](const Tensor& in) {
    const auto scope = m.scope("inner");
    const Tensor scale = m.parameter("scale", {kEmbed}, normal(0.5));
    const Tensor moved = in * scale + shift;
    return moved + m.parameter("more", {kEmbed}, kOnes);
  });
  m.output("y", y * m.parameter("last", {}, uniform(2)));
  return built(m);
}

}  // namespace

TEST_CASE("weights of repeated layers are one tensor, asked for where they are used") {
  const Model model = scaled(4);
  CHECK(model.graph.text() ==
        R"(graph scaled(%x: f32[batch=2, embed=3], %shift: f32[embed=3] state, )"
        R"(%blocks.*.inner.scale: f32[layer=4, embed=3] state, )"
        R"(%blocks.*.inner.more: f32[layer=4, embed=3] state, %last: f32[] state) {
  %0 = repeat(%x, %blocks.*.inner.scale, %blocks.*.inner.more, %shift) )"
        R"({carried=1, count=4, reversed=false, sliced=2, stack="layer"}
      : f32[batch=2, embed=3]
  body(%carried0: f32[batch=2, embed=3], %part0: f32[embed=3], %part1: f32[embed=3], )"
        R"(%outer0: f32[embed=3]) {
    %0 = broadcast(%part0) : f32[batch=2, embed=3]
    %1 = mul(%carried0, %0) : f32[batch=2, embed=3]
    %2 = broadcast(%outer0) : f32[batch=2, embed=3]
    %3 = add(%1, %2) : f32[batch=2, embed=3]
    %4 = broadcast(%part1) : f32[batch=2, embed=3]
    %5 = add(%3, %4) : f32[batch=2, embed=3]
    return %5 as "carried0"
  }
  %1 = broadcast(%last) : f32[batch=2, embed=3]
  %2 = mul(%0, %1) : f32[batch=2, embed=3]
  return %2 as "y"
}
)");
  CHECK(parse_graph(model.graph.text())->text() == model.graph.text());
  REQUIRE(model.parameters.size() == 4);
  CHECK(model.parameters[1] ==
        Parameter{"blocks.*.inner.scale", {DType::f32, {{"layer", 4}, kEmbed}}, normal(0.5), true});
  CHECK(!model.parameters[0].decay);
  CHECK(model.parameters[1].stacked());
  CHECK(!model.parameters[0].stacked());
  CHECK(model.parameter("last")->init == uniform(2));
  CHECK(model.parameter("nothing") == nullptr);
  CHECK(model.parameter_count() == 3 + 12 + 12 + 1);
  CHECK(layer_name("blocks.*.inner.scale", 12) == "blocks.12.inner.scale");
  CHECK(layer_name("shift", 12) == "shift");
}

TEST_CASE("each layer computes with its own part") {
  const Model model = scaled(2);
  const Graph& graph = model.graph;
  const auto result = run(graph, {{graph.type(0), {1, 1, 1, 2, 2, 2}},
                                  {graph.type(1), {10, 20, 30}},
                                  {graph.type(graph.inputs[2].value), {1, 2, 3, 4, 5, 6}},
                                  {graph.type(graph.inputs[3].value), {0, 0, 0, 1, 1, 1}},
                                  {graph.type(graph.inputs[4].value), {2}}});
  CHECK(result[0].values == std::vector<double>{2 * (11 * 4 + 11), 2 * (22 * 5 + 21),
                                                2 * (33 * 6 + 31), 2 * (12 * 4 + 11),
                                                2 * (24 * 5 + 21), 2 * (36 * 6 + 31)});
}

TEST_CASE("what is wrong with a model is told with its line") {
  const Type type{DType::f32, {kBatch, kEmbed}};
  SUBCASE("a name twice") {
    ModelBuilder m("g");
    m.at("a.py:3");
    m.parameter("w", {kEmbed}, kZeros);
    m.parameter("w", {kEmbed}, kZeros);
    CHECK(mistake(m) == "a.py:3: two parameters are named w; name one otherwise");
  }
  SUBCASE("a layer that gives what the next cannot take") {
    ModelBuilder m("g");
    m.at("a.py:4");
    const Tensor x = m.input("x", type);
    m.layers(2, "blocks", x, [&](const Tensor& in) { return m.ops().sum(in, {"batch"}); });
    CHECK(mistake(m) ==
          "a.py:4: blocks.*: a layer makes f32[embed=3] of f32[batch=2, embed=3]; the next one "
          "takes what it took itself");
  }
  SUBCASE("layers within layers") {
    ModelBuilder m("g");
    const Tensor x = m.input("x", type);
    m.layers(2, "blocks", x, [&](const Tensor& in) {
      return m.layers(2, "inner", in, [](const Tensor& same) { return same; });
    });
    CHECK(mistake(m) == "blocks.*.inner: layers within layers cannot be repeated");
  }
  SUBCASE("no layers") {
    ModelBuilder m("g");
    const Tensor x = m.input("x", type);
    m.layers(0, "blocks", x, [&](const Tensor& in) { return in; });
    CHECK(mistake(m) == "blocks: there must be 1 or more layers, not 0");
  }
  SUBCASE("a layer's weight, and its tensors, outside of it") {
    ModelBuilder m("g");
    const Tensor x = m.input("x", type);
    Tensor kept;
    m.layers(2, "blocks", x, [&](const Tensor& in) {
      kept = in * m.parameter("w", {kEmbed}, kZeros);
      return kept;
    });
    SUBCASE("its weight") {
      m.weight("blocks.*.w");
      CHECK(mistake(m) ==
            "parameter blocks.*.w is one of a repeated layer's and is used outside of it");
    }
    SUBCASE("its tensors") {
      m.output("y", x + kept);
      CHECK(mistake(m) ==
            "f32[batch=2, embed=3] belongs to another graph, or to a repeated body that has ended");
    }
    SUBCASE("its tensors in another layer") {
      const Tensor y = m.layers(2, "more", x, [&](const Tensor& in) { return in + kept; });
      m.output("y", y);
      CHECK(mistake(m) ==
            "f32[batch=2, embed=3] belongs to another graph, or to a repeated body that has ended");
    }
  }
}

TEST_CASE("dropout leaves out others in each layer and batch, and nothing unless training") {
  const auto with = [](ModelUse use) {
    ModelBuilder m("g", use, 7);
    const Tensor x = m.input("x", {DType::f32, {{"n", 1000}}});
    const Tensor y = m.layers(2, "blocks", x, [&](const Tensor& in) {
      // What the first layer leaves is 4/3 and 0; of the second only its own part is kept.
      return m.dropout(in, 0.25);
    });
    m.output("y", y);
    m.output("once", m.dropout(m.dropout(x, 0.25), 0));
    m.output("again", m.dropout(x, 0.25));
    return built(m);
  };
  const Model model = with(ModelUse::train);
  REQUIRE(model.graph.input(kDrawInput) != nullptr);
  const auto drawn = [&](double draw) {
    return run(model.graph,
               {{model.graph.type(0), std::vector<double>(1000, 1)}, {{DType::i64, {}}, {draw}}});
  };
  const auto first = drawn(3);
  CHECK(drawn(3)[0].values == first[0].values);
  CHECK(drawn(4)[0].values != first[0].values);
  CHECK(first[1].values != first[2].values);
  const auto zeros = std::ranges::count(first[1].values, 0.0);
  CHECK(zeros > 200);
  CHECK(zeros < 300);
  // Were both layers to drop the same, a quarter would be gone.
  const auto after_both = std::ranges::count(first[0].values, 0.0);
  CHECK(after_both > 380);
  CHECK(after_both < 500);
  CHECK(first[1].values[static_cast<size_t>(std::ranges::max_element(first[1].values) -
                                            first[1].values.begin())] == doctest::Approx(4.0 / 3));
  CHECK(with(ModelUse::generate).graph.input(kDrawInput) == nullptr);
  CHECK(with(ModelUse::evaluate).graph.input(kDrawInput) == nullptr);
  CHECK(use_named("evaluate") == ModelUse::evaluate);
  CHECK(use_named("serve").error().text() ==
        "a model is used to train, evaluate or generate, not to 'serve'");
}
