#include "compile/flops.h"

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/tiny_gpt_test.h"

using namespace tutti;

TEST_CASE("a GPT's products, attention and loss are counted, in each layer") {
  // Tokens 2 × 3, embed 4, heads 2 × 2, hidden 8, vocabulary 5.
  const double in_layer = 2 * 6 * (4 * 12 + 4 * 4 + 4 * 8 + 8 * 4) + 4 * 6 * 4 * 3 * 0.5;
  const double loss = 2 * 6 * 5 * 4;
  const Graph graph = tiny_gpt(7);
  CHECK(flops_of(graph) == 7 * in_layer + loss);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  const auto with = differentiate(graph, "loss", names);
  REQUIRE(with.has_value());
  CHECK(flops_of(*with) == 3 * (7 * in_layer + loss));
}
