// Graphs at random, and meshes and rules for them, for tests.
#pragma once

#include <algorithm>
#include <array>

#include "base/philox.h"
#include "compile/autodiff.h"
#include "compile/builder.h"
#include "compile/shard/shard_fixture_test.h"

namespace tutti {

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

enum class RandomKind : uint8_t {
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
    const auto kinds = static_cast<size_t>(sums_ ? RandomKind::count_ : RandomKind::mean);
    const auto kind = static_cast<RandomKind>(chance_.below(kinds));
    if (kind == RandomKind::product || names.empty()) return x * y;
    const std::string dim = names[chance_.below(names.size())];
    const int64_t size = x.type().size_of(dim);
    switch (kind) {
      case RandomKind::difference: return x - y;
      case RandomKind::tanh: return b_.unary(OpKind::tanh, x);
      case RandomKind::greatest: return b_.max(x, chance_.some(names));
      case RandomKind::order: return ordered(x);
      case RandomKind::rotate:
        return b_.concat({b_.slice(x, dim, size / 2, size / 2), b_.slice(x, dim, 0, size / 2)},
                         dim);
      case RandomKind::window:
        return b_.pad(b_.slice(x, dim, size / 2, size / 2), dim, size / 2, 0);
      case RandomKind::merge: return merged(x);
      case RandomKind::rename: {
        const Tensor other = b_.unary(OpKind::tanh, b_.rename(x, dim, "r"));
        return b_.rename(other, "r", dim);
      }
      case RandomKind::rows: return x.type().has("e") ? x * x : b_.gather(x, indices_, dim);
      case RandomKind::mean: return b_.mean(x, chance_.some(names));
      case RandomKind::softmax: return b_.softmax(x, dim);
      case RandomKind::matmul: {
        Names both;
        for (const std::string& name : names)
          if (y.type().has(name)) both.push_back(name);
        return both.empty() ? x * y : b_.matmul(x, y, chance_.some(both));
      }
      case RandomKind::running: return b_.cumulative_sum(x, dim);
      case RandomKind::rounds: return rounds(x, y, dim);
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

inline ShardMesh random_mesh(Chance& chance) {
  constexpr std::array kMeshes = {"x=2", "x=4", "x=2,y=2", "y=2,x=2", "x=2,y=4", "x=2,y=2,z=2"};
  return mesh_of(kMeshes[chance.below(kMeshes.size())]);
}

inline ShardRules random_rules(Chance& chance, const ShardMesh& mesh) {
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

struct RandomCase {
  Graph graph;
  ShardMesh mesh;
  ShardRules rules;
};

inline RandomCase random_case(uint64_t seed, bool sums) {
  RandomCase its{.graph = RandomGraph(seed, sums).build(), .mesh = {}, .rules = {}};
  Chance chance(seed + 1'000'000);
  its.mesh = random_mesh(chance);
  its.rules = random_rules(chance, its.mesh);
  return its;
}

}  // namespace tutti
