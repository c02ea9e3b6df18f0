// Graphs at random on meshes at random, by rules at random: the same as on one rank.
#include <algorithm>
#include <array>

#include "base/philox.h"
#include "compile/autodiff.h"
#include "compile/builder.h"
#include "compile/shard/shard_fixture_test.h"

using namespace tutti;

namespace {

class Chance {
 public:
  explicit Chance(uint64_t seed) : seed_(seed) {}
  size_t below(size_t count) { return random_bits(seed_, 11, drawn_++) % count; }
  // In any order, at least one.
  template <class T>
  std::vector<T> some(std::vector<T> all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
    all.resize(1 + below(all.size()));
    return all;
  }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

enum class Kind : uint8_t {
  difference,
  product,
  tanh,
  greatest,
  order,
  rotate,
  window,
  merge,
  rename,
  rows,
  // those that add over dimensions
  mean,
  softmax,
  matmul,
  running,
  rounds,
  count_
};

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, bool sums) : chance_(seed), sums_(sums), b_("random") {}

  Graph build() {
    Names inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(fmt::format("x{}", i));
      values_.push_back(b_.input(inputs.back(), {DType::f32, chance_.some(dims_)}));
    }
    indices_ = b_.input("indices", {DType::i32, {{"e", 4}}});
    for (int i = 0; i < 8; ++i) values_.push_back(next(values_));
    if (!sums_) {
      for (size_t i = 3; i < values_.size(); ++i) b_.output(fmt::format("y{}", i), values_[i]);
      return built();
    }
    Tensor loss;
    for (const Tensor& value : values_) {
      const Tensor part = b_.mean(value * value, value.type().names());
      loss = loss ? loss + part : part;
    }
    b_.output("loss", loss);
    auto with = differentiate(built(), "loss", inputs);
    REQUIRE_MESSAGE(with.has_value(), with.error().text());
    return *std::move(with);
  }

 private:
  Graph built() {
    auto graph = b_.build();
    REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
    return *std::move(graph);
  }

  Tensor next(const std::vector<Tensor>& from) {
    const Tensor x = from[chance_.below(from.size())];
    const Tensor y = from[chance_.below(from.size())];
    const Names names = x.type().names();
    const auto kinds = static_cast<size_t>(sums_ ? Kind::count_ : Kind::mean);
    const auto kind = static_cast<Kind>(chance_.below(kinds));
    if (kind == Kind::product || names.empty()) return x * y;
    const std::string dim = names[chance_.below(names.size())];
    const int64_t size = x.type().size_of(dim);
    switch (kind) {
      case Kind::difference: return x - y;
      case Kind::tanh: return b_.unary(OpKind::tanh, x);
      case Kind::greatest: return b_.max(x, chance_.some(names));
      case Kind::order: return ordered(x);
      case Kind::rotate:
        return b_.concat({b_.slice(x, dim, size / 2, size / 2), b_.slice(x, dim, 0, size / 2)},
                         dim);
      case Kind::window: return b_.pad(b_.slice(x, dim, size / 2, size / 2), dim, size / 2, 0);
      case Kind::merge: return merged(x);
      case Kind::rename: {
        const Tensor other = b_.unary(OpKind::tanh, b_.rename(x, dim, "r"));
        return b_.rename(other, "r", dim);
      }
      case Kind::rows: return x.type().has("e") ? x * x : b_.gather(x, indices_, dim);
      case Kind::mean: return b_.mean(x, chance_.some(names));
      case Kind::softmax: return b_.softmax(x, dim);
      case Kind::matmul: {
        Names both;
        for (const std::string& name : names)
          if (y.type().has(name)) both.push_back(name);
        return both.empty() ? x * y : b_.matmul(x, y, chance_.some(both));
      }
      case Kind::running: return b_.cumulative_sum(x, dim);
      case Kind::rounds: return rounds(x, y, dim);
      default: return x * y;
    }
  }

  Tensor ordered(const Tensor& x) {
    Names order = chance_.some(x.type().names());
    for (const std::string& name : x.type().names())
      if (std::ranges::find(order, name) == order.end()) order.push_back(name);
    return b_.transpose(x, order);
  }

  // The last two dimensions as one, and apart again.
  Tensor merged(const Tensor& x) {
    Dims dims = x.type().dims;
    if (dims.size() < 2) return -x;
    const Dim last = dims.back();
    dims.pop_back();
    dims.back() = {"m" + dims.back().name + last.name, dims.back().size * last.size};
    const Tensor whole = b_.unary(OpKind::tanh, b_.reshape(x, dims));
    return b_.reshape(whole, x.type().dims);
  }

  Tensor rounds(const Tensor& x, const Tensor& y, const std::string& dim) {
    const Tensor parts = b_.broadcast(y, with_rounds(y.type()).dims);
    const auto made = b_.repeat(
        {.count = 2, .stack = "round"}, {x}, {parts},
        [&](Builder& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& part) {
          const Tensor c = carried[0];
          const Tensor shared = body.mean(part[0] * part[0], part[0].type().names());
          const Tensor next = body.unary(OpKind::tanh, c - body.mean(c * c, {dim}) * shared);
          return std::vector<Tensor>{next, body.max(c, {dim})};
        });
    return made[0] + b_.mean(made[1], {"round"});
  }
  static Type with_rounds(Type type) {
    type.dims.insert(type.dims.begin(), Dim{"round", 2});
    return type;
  }

  Chance chance_;
  bool sums_;
  Builder b_;
  Dims dims_{{"a", 8}, {"b", 4}, {"c", 4}, {"d", 8}};
  Tensor indices_;
  std::vector<Tensor> values_;
};

ShardMesh random_mesh(Chance& chance) {
  constexpr std::array kMeshes = {"x=2", "x=4", "x=2,y=2", "y=2,x=2", "x=2,y=4", "x=2,y=2,z=2"};
  return mesh_of(kMeshes[chance.below(kMeshes.size())]);
}

ShardRules random_rules(Chance& chance, const ShardMesh& mesh) {
  Names axes;
  for (const ShardAxis& axis : mesh.axes()) axes.push_back(axis.name);
  ShardRules rules;
  for (std::string& dim : chance.some(Names{"a", "b", "c", "d", "e", "r"})) {
    Names its = chance.some(axes);
    if (chance.below(3) != 0) its.resize(1);
    if (mesh.product(its) > 4) its.resize(1);
    rules.push_back({std::move(dim), std::move(its)});
  }
  return rules;
}

// Gives how often ranks met.
std::map<std::string, int> check(uint64_t seed, bool sums) {
  CAPTURE(seed);
  const Graph graph = RandomGraph(seed, sums).build();
  Chance chance(seed + 1'000'000);
  const ShardMesh mesh = random_mesh(chance);
  const ShardRules rules = random_rules(chance, mesh);
  CAPTURE(mesh.text());
  CAPTURE(rules_text(rules));
  const ShardedGraph made = sharded(graph, mesh, rules);
  CHECK(graph_of(made.graph.text()).text() == made.graph.text());
  const auto inputs = inputs_of(graph, seed);
  const Precision precision = sums ? Precision::wide : Precision::typed;
  const auto expected = run(graph, inputs, precision);
  const auto results = run_on_ranks(graph, made, mesh, inputs, precision);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    if (sums)
      check_close(results[i], expected[i], 1e-9);
    else
      CHECK(results[i].values == expected[i].values);
  }
  return meetings(made.graph);
}

}  // namespace

TEST_CASE("any graph on any mesh by any rules, with its gradients, is the graph on one rank") {
  std::map<std::string, int> all;
  for (uint64_t seed = 0; seed < 150; ++seed)
    for (const auto& [name, count] : check(seed, true)) all[name] += count;
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
    CHECK(all[name] > 50);
}

TEST_CASE("what adds nothing over dimensions has the same bits on any mesh") {
  for (uint64_t seed = 0; seed < 150; ++seed) check(seed, false);
}
