// Small models at random: element by element, sums and maxima over any dimensions, broadcasts,
// other orders, in sizes of which many are 1.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "compile/autodiff.h"
#include "compile/builder.h"

namespace tutti {

class RandomModel {
 public:
  RandomModel(Builder& builder, uint64_t seed) : b_(builder), seed_(seed) {
    for (const char* name : {"a", "b", "c", "d"})
      dims_.push_back({name, std::array<int64_t, 5>{1, 1, 2, 5, 17}[below(5)]});
  }

  // All that it computes counts, so every operation has its gradient.
  Tensor loss() {
    for (int i = 0; i < 3; ++i) {
      Dims dims = some(dims_);
      inputs_.push_back(fmt::format("x{}.{}", seed_, i));
      values_.push_back(b_.input(inputs_.back(), {DType::f32, std::move(dims)}));
    }
    for (int i = 0; i < 7; ++i) values_.push_back(next());
    Tensor total;
    for (const Tensor& value : values_) {
      const Tensor part = b_.mean(value * value, value.type().names());
      total = total ? total + part : part;
    }
    return total;
  }
  const Names& inputs() const { return inputs_; }

 private:
  size_t below(size_t count) { return random_bits(seed_, 7, drawn_++) % count; }

  // In any order, at least one.
  template <class T>
  std::vector<T> some(std::vector<T> all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
    all.resize(1 + below(all.size()));
    return all;
  }

  Tensor next() {
    const Tensor x = values_[below(values_.size())];
    const Tensor y = values_[below(values_.size())];
    const size_t kind = below(9);
    if (kind < 2) return x * y;
    if (kind == 2) return x - y;
    if (kind == 3) return b_.unary(OpKind::tanh, x);
    const Names names = x.type().names();
    if (names.empty()) return x + y;
    Names over = some(names);
    if (kind == 4) return b_.mean(x, over);
    if (kind == 5) return b_.max(x, over);
    if (kind == 6) return x - b_.mean(x * x, over);
    if (kind == 7) return b_.softmax(x, over[0]) * y;
    for (const std::string& name : names)
      if (std::ranges::find(over, name) == over.end()) over.push_back(name);
    return b_.transpose(x, over);
  }

  Builder& b_;
  uint64_t seed_;
  uint64_t drawn_ = 0;
  Dims dims_;
  Names inputs_;
  std::vector<Tensor> values_;
};

// So many of them in one graph, with their gradients.
inline Graph random_models(uint64_t first_seed, int count) {
  Builder builder("random");
  Tensor loss;
  Names inputs;
  for (int i = 0; i < count; ++i) {
    RandomModel model(builder, first_seed + static_cast<uint64_t>(i));
    const Tensor its = model.loss();
    loss = loss ? loss + its : its;
    inputs.insert(inputs.end(), model.inputs().begin(), model.inputs().end());
  }
  builder.output("loss", loss);
  auto graph = builder.build();
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  auto with = differentiate(*graph, "loss", inputs);
  REQUIRE_MESSAGE(with.has_value(), with.error().text());
  return *std::move(with);
}

}  // namespace tutti
