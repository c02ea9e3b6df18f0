#include "compile/program/packing.h"

#include <fmt/format.h>

#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/program/schedule.h"

using namespace tutti;

namespace {

// Atoms of some rows by two layers of weights, whose gradient AdamW gets.
std::string atoms_graph(int atoms, int rows) {
  return fmt::format(
      R"(graph g(%w: f32[layer=2, k=100, n=128] state, %first: f32[layer=2, k=100, n=128] state,
      %second: f32[layer=2, k=100, n=128] state, %x: f32[atom={0}, m={1}, k=100],
      %d: f32[layer=2, k=100, n=128], %rate: f32[], %step: i64[]) {{
    %y = repeat(%x, %w) {{carried=0, count={0}, reversed=false, sliced=1, stack="atom"}}
    body(%x: f32[m={1}, k=100], %w: f32[layer=2, k=100, n=128]) {{
      %y = repeat(%w, %x) {{carried=0, count=2, reversed=false, sliced=1, stack="layer"}}
      body(%w: f32[k=100, n=128], %x: f32[m={1}, k=100]) {{
        %y = matmul(%x, %w) {{over=["k"]}}
        return %y as "y"
      }}
      return %y as "y"
    }}
    %one = constant() {{value=1.0}} : f32[]
    %w1, %f1, %s1 = adamw(%w, %first, %second, %d, %one, %rate, %step)
        {{beta1=0.9, beta2=0.95, decay=0.1, epsilon=1e-08}}
    return %y as "y", %w1 as "w", %f1 as "first", %s1 as "second"
  }})",
      atoms, rows);
}

Program packed(const std::string& graph, const PackingOptions& options = {}) {
  auto program = lower_to_program(optimize(graph_of(graph)));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  choose_packing(*program, options);
  const auto checked = check_schedule(*program);
  CHECK_MESSAGE(checked.has_value(), checked.error().text());
  return *std::move(program);
}

// The instructions that have panels, and the panels.
std::string panels_of(const Program& program) {
  std::string text;
  const std::string all = program.text();
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    const std::string line = all.substr(at, end - at);
    const size_t panel = line.find(" panel");
    if (line.starts_with("  panel"))
      text += line.substr(2) + "\n";
    else if (line.starts_with("  ") && panel != std::string::npos)
      text += line.substr(2, line.find_first_of(" (", 2) - 2) + line.substr(panel) + "\n";
    at = end + 1;
  }
  return text;
}

}  // namespace

TEST_CASE("weights that several atoms of few rows read stay packed, and AdamW writes them so") {
  CHECK(panels_of(packed(atoms_graph(3, 64))) ==
        "panel 0: w:f32[row=100, column=128]\n"
        "panel 1: w+51200:f32[row=100, column=128]\n"
        "gemm panel 0\n"
        "gemm panel 1 beside 1 in room 1\n"
        "gemm panel 0 beside 1\n"
        "gemm panel 1 beside 1 in room 1\n"
        "gemm panel 0 beside 1\n"
        "gemm panel 1 beside 1 in room 1\n"
        "adamw panels 0, 1\n");
}

TEST_CASE("weights are not kept packed where that does not pay") {
  CHECK(packed(atoms_graph(1, 64)).panels.empty());    // an update for every product
  CHECK(packed(atoms_graph(2, 64)).panels.empty());    // …
  CHECK(packed(atoms_graph(3, 32)).panels.empty());    // read in place
  CHECK(packed(atoms_graph(3, 2048)).panels.empty());  // packing is nothing
}

TEST_CASE("panels take no more memory than they may") {
  const Program program = packed(atoms_graph(4, 64), {.most_bytes = 60'000});
  CHECK(program.panels.size() == 1);
  CHECK(panel_bytes(program) == 100 * 128 * 4);
}

TEST_CASE("weights that nobody changes are packed for one product, both ways they are read") {
  const std::string graph = R"(graph g(%w: f32[k=100, n=128] state, %x: f32[m=50, k=100]) {
    %y = matmul(%x, %w) {over=["k"]}
    %z = matmul(%y, %w) {over=["n"]}
    return %z as "z"
  })";
  CHECK(packed(graph).panels.empty());
  CHECK(panels_of(packed(graph, {.constant_states = true})) ==
        "panel 0: w:f32[row=100, column=128]\n"
        "panel 1: w:f32[row=128, column=100] by 1,128\n"
        "gemm panel 0\n"
        "gemm panel 1\n");
}

TEST_CASE("only equal matrices that make up a state stay packed") {
  const auto panels = [](const std::string& products, const std::string& returned) {
    return panels_of(packed("graph g(%w: f32[k=200, n=128] state, %x: f32[m=50, k=100]," +
                                std::string(" %y: f32[m=50, k=200], %z: f32[m=50, k=60]) {") +
                                products + " return " + returned + " }",
                            {.constant_states = true}));
  };
  const std::string half = R"(%h = slice(%w) {dim="k", start=100, size=100}
      %a = matmul(%x, %h) {over=["k"]} )";
  CHECK(panels(half, R"(%a as "a")") ==
        "panel 0: w+51200:f32[row=100, column=128]\n"
        "gemm panel 0\n");
  // Not a part of parts that are equal, and not in two ways.
  CHECK(panels(R"(%h = slice(%w) {dim="k", start=60, size=60} %a = matmul(%z, %h) {over=["k"]})",
               R"(%a as "a")")
            .empty());
  CHECK(panels(half + R"(%b = matmul(%y, %w) {over=["k"]})", R"(%a as "a", %b as "b")") ==
        "panel 0: w+51200:f32[row=100, column=128]\n"
        "gemm panel 0\n");
}
