// A small GPT for tests of generation, its weights, and its logits computed all at once.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "run/initialise.h"
#include "run/memory_test.h"
#include "serve/decoder.h"
#include "world/real/thread_team.h"

namespace tutti {

struct SmallGpt {
  int64_t layers = 3;
  int64_t heads = 2;
  int64_t group = 2;  // query heads that share one of keys
  int64_t head = 5;
  int64_t vocab = 37;
  int64_t places = 130;
  bool tied = true;

  int64_t width() const { return heads * group * head; }

  Tensor norm(ModelBuilder& m, const Tensor& x, std::string_view name) const {
    const auto scope = m.scope(name);
    const Dim embed{"embed", width()};
    const Tensor scale = m.parameter("scale", {embed}, uniform(2));
    return m.ops().layer_norm(x, scale, m.parameter("shift", {embed}, uniform(0.5)), "embed");
  }

  Tensor attention(ModelBuilder& m, const Tensor& x) const {
    const auto scope = m.scope("attention");
    const Dims queries{{"heads", heads}, {"group", group}, {"head", head}};
    const auto project = [&](std::string_view name, Dims to) {
      to.insert(to.begin(), Dim{"embed", width()});
      const Tensor weight = m.parameter(name, to, normal(0.3));
      return m.ops().matmul(x, weight, {"embed"});
    };
    const Tensor q = project("q", queries);
    const Tensor k = m.ops().rename(project("k", {queries[0], queries[2]}), "time", "keys");
    const Tensor v = m.ops().rename(project("v", {queries[0], queries[2]}), "time", "keys");
    const Tensor mixed = m.attention(q, k, v);
    Dims back = queries;
    back.push_back({"embed", width()});
    const Tensor out = m.parameter("out", back, normal(0.3));
    return m.ops().matmul(mixed, out, {"heads", "group", "head"});
  }

  Tensor block(ModelBuilder& m, const Tensor& x) const {
    const Tensor middle = x + attention(m, norm(m, x, "norm1"));
    const auto scope = m.scope("mlp");
    const Dim hidden{"hidden", 3 * width() + 1};
    const Dim embed{"embed", width()};
    const Tensor up = m.parameter("up", {embed, hidden}, normal(0.2));
    const Tensor shift = m.parameter("shift", {hidden}, normal(0.2));
    Builder& b = m.ops();
    const Tensor y = b.gelu(b.matmul(norm(m, middle, "norm2"), up, {"embed"}) + shift);
    return middle + b.matmul(y, m.parameter("down", {hidden, embed}, normal(0.2)), {"hidden"});
  }

  // Without a cache: of whole sequences.
  Result<Model> trace(int64_t batch, int64_t time, const CacheShape* cache) const {
    ModelBuilder m("gpt", ModelUse::generate);
    if (cache != nullptr) m.keep_cache(*cache);
    const Tensor tokens = m.input("tokens", {DType::i32, {{"batch", batch}, {"time", time}}});
    const Dim embed{"embed", width()};
    const Tensor words = m.parameter("words", {{"vocab", vocab}, embed}, normal(1));
    const Tensor spots = m.parameter("places", {{"place", places}, embed}, normal(1));
    Builder& b = m.ops();
    const Tensor there = m.positions("time", time);
    const Tensor x = b.gather(words, tokens, "vocab") + b.gather(spots, there, "place");
    const Tensor y = m.layers(layers, "blocks", x, [&](const Tensor& in) { return block(m, in); });
    const Tensor last = norm(m, y, "norm");
    if (tied) {
      m.output("logits", b.matmul(last, words, {"embed"}));
    } else {
      const Tensor head_weight = m.parameter("head", {embed, {"vocab", vocab}}, normal(0.3));
      m.output("logits", b.matmul(last, head_weight, {"embed"}));
    }
    return m.build();
  }
  TraceForDecoding for_decoding() const {
    return [*this](const DecodingShape& shape) {
      return trace(shape.cache.sequences, shape.time, &shape.cache);
    };
  }
};

// Weights of a model, as they begin.
class Weights {
 public:
  FindWeight find() {
    return [this](const Parameter& parameter) -> Result<const float*> {
      std::vector<float>& values = values_[parameter.name];
      if (values.empty()) {
        values.resize(static_cast<size_t>(parameter.type.elements()));
        TeamOfOne alone;
        initialise(parameter, 5, values, alone);
      }
      return values.data();
    };
  }

 private:
  std::map<std::string, std::vector<float>> values_;
};

// Logits [sequence][time][vocab] of whole sequences.
inline std::vector<float> all_logits(const SmallGpt& gpt, Weights& weights,
                                     const std::vector<TokenList>& sequences) {
  const auto time = std::ssize(sequences[0]);
  auto model = gpt.trace(std::ssize(sequences), time, nullptr);
  REQUIRE_MESSAGE(model.has_value(), model.error().text());
  auto program = lower_to_program(optimize(model->graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  TeamOfOne team;
  TestDevice device(team);
  auto loaded = device.cpu.load(*program);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  std::vector<Array> inputs;
  for (const Input& input : model->graph.inputs) {
    Array array{model->graph.type(input.value), {}};
    if (input.role == InputRole::data) {
      for (const TokenList& each : sequences)
        array.values.insert(array.values.end(), each.begin(), each.end());
    } else {
      const float* values = *weights.find()(*model->parameter(input.name));
      array.values.assign(values, values + array.type.elements());
    }
    inputs.push_back(std::move(array));
  }
  ProgramMemory memory(**loaded, inputs);
  const auto done = (*loaded)->run(memory.call());
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  const auto* logits = reinterpret_cast<const float*>(memory.call().outputs[0]);
  return {logits, logits + std::ssize(sequences) * time * gpt.vocab};
}

}  // namespace tutti
