// A small GPT as examples/gpt.py has it, whose queries, keys and values are one product.
#pragma once

#include <doctest/doctest.h>

#include "compile/autodiff.h"
#include "compile/model.h"

namespace tutti {

struct FusedGptSizes {
  int64_t layers = 2;
  int64_t batch = 4;
  int64_t time = 4;
  int64_t key_heads = 4;
  int64_t group = 1;  // queries for each key
  int64_t head = 2;
  int64_t vocab = 6;
  int64_t hidden = 8;
};

class FusedGpt {
 public:
  explicit FusedGpt(const FusedGptSizes& sizes) : sizes_(sizes) {}

  // With its loss.
  Model model() {
    const Type sequences{DType::i32, {{"batch", sizes_.batch}, {"time", sizes_.time}}};
    const Tensor tokens = m_.input("tokens", sequences);
    const Tensor targets = m_.input("targets", sequences);
    const Tensor wte = parameter("wte", {{"vocab", sizes_.vocab}, embed_});
    const Tensor wpe = parameter("wpe", {{"place", sizes_.time}, embed_});
    Builder& b = m_.ops();
    const Tensor x =
        b.gather(wte, tokens, "vocab") + b.gather(wpe, m_.positions("time", sizes_.time), "place");
    const Tensor y = m_.layers(sizes_.layers, "h", x, [&](const Tensor& in) { return block(in); });
    const Tensor losses = b.linear_cross_entropy(norm(y, "ln_f"), wte, targets, "embed", "vocab");
    m_.output("loss", b.mean(losses, {"batch", "time"}));
    auto model = m_.build();
    REQUIRE_MESSAGE(model.has_value(), model.error().text());
    return *std::move(model);
  }

 private:
  Tensor parameter(std::string_view name, Dims dims) {
    return m_.parameter(name, std::move(dims), normal(0.5));
  }
  Tensor linear(const Tensor& x, const std::string& name, const Dim& in, const Dim& out) {
    const Tensor weight = parameter(name + ".weight", {in, out});
    return m_.ops().matmul(x, weight, {in.name}) + parameter(name + ".bias", {out});
  }
  Tensor norm(const Tensor& x, const std::string& name) {
    const Tensor scale = parameter(name + ".weight", {embed_});
    return m_.ops().layer_norm(x, scale, parameter(name + ".bias", {embed_}), "embed");
  }
  Tensor heads(const Tensor& qkv, int64_t start, const Dims& split) {
    int64_t size = 1;
    for (const Dim& dim : split) size *= dim.size;
    Dims dims{{"batch", sizes_.batch}, {"time", sizes_.time}};
    dims.insert(dims.end(), split.begin(), split.end());
    return m_.ops().reshape(m_.ops().slice(qkv, "qkv", start, size), dims);
  }
  Tensor attention(const Tensor& x) {
    const int64_t keys = sizes_.key_heads * sizes_.head;
    const int64_t queries = keys * sizes_.group;
    const Tensor qkv = linear(x, "c_attn", embed_, {"qkv", queries + 2 * keys});
    Builder& b = m_.ops();
    const Dims split{{"heads", sizes_.key_heads}, {"head", sizes_.head}};
    Dims split_queries = split;
    if (sizes_.group > 1)
      split_queries.insert(split_queries.begin() + 1, Dim{"group", sizes_.group});
    const Tensor q = heads(qkv, 0, split_queries);
    const Tensor k = b.rename(heads(qkv, queries, split), "time", "keys");
    const Tensor v = b.rename(heads(qkv, queries + keys, split), "time", "keys");
    const Dim mixed{"mixed", queries};
    const Tensor flat =
        b.reshape(m_.attention(q, k, v), {{"batch", sizes_.batch}, {"time", sizes_.time}, mixed});
    return linear(flat, "c_proj", mixed, embed_);
  }
  Tensor block(const Tensor& in) {
    const Tensor middle = in + attention(norm(in, "ln_1"));
    const Dim hidden{"hidden", sizes_.hidden};
    const Tensor up = linear(norm(middle, "ln_2"), "c_fc", embed_, hidden);
    return middle + linear(m_.ops().gelu(up, true), "c_down", hidden, embed_);
  }

  FusedGptSizes sizes_;
  ModelBuilder m_{"gpt"};
  Dim embed_{"embed", 8};
};

// A step of training, without what train/ knows of it.
inline Graph step_of(const Model& model) {
  Names names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  auto differentiated = differentiate(model.graph, "loss", names);
  REQUIRE_MESSAGE(differentiated.has_value(), differentiated.error().text());
  Builder b(*std::move(differentiated));
  const Tensor loss = b.tensor(b.graph().output("loss")->value);
  std::vector<Tensor> gradients;
  for (const std::string& name : names)
    gradients.push_back(b.tensor(b.graph().output(gradient_name(name))->value));
  b.graph().outputs.clear();
  const Tensor norm = b.unary(OpKind::sqrt, b.squared_norm(gradients));
  const Tensor rate = b.input("rate", {DType::f32, {}});
  const Tensor step = b.input("step", {DType::i64, {}});
  b.output("loss", loss);
  b.output("norm", norm);
  for (size_t i = 0; i < names.size(); ++i) {
    const Type type = gradients[i].type();
    const Tensor weight = b.tensor(b.graph().input(names[i])->value);
    const auto next =
        b.adamw(weight, b.state("first/" + names[i], type), b.state("second/" + names[i], type),
                gradients[i], 1 / norm, rate, step, {});
    b.output(names[i], next[0]);
    b.output("first/" + names[i], next[1]);
    b.output("second/" + names[i], next[2]);
  }
  auto graph = b.build();
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  return *std::move(graph);
}

}  // namespace tutti
