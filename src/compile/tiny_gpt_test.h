// The smallest GPT that has everything a large one has.
#pragma once

#include <doctest/doctest.h>

#include "compile/builder.h"

namespace tutti {

struct TinyGptSizes {
  int64_t batch = 2;
  int64_t time = 3;
  int64_t heads = 2;
  int64_t head = 2;
  int64_t vocab = 5;
  int64_t hidden = 8;
};

// With its loss.
inline Graph tiny_gpt(int64_t layers, const TinyGptSizes& sizes = {}) {
  Builder b("gpt");
  const Dim batch{"batch", sizes.batch};
  const Dim time{"time", sizes.time};
  const Dim embed{"embed", sizes.heads * sizes.head};
  const Dim heads{"heads", sizes.heads};
  const Dim head{"head", sizes.head};
  const Dim vocab{"vocab", sizes.vocab};
  const Dim layer{"layer", layers};
  const Dim hidden{"hidden", sizes.hidden};
  const auto f32 = [](Dims dims) { return Type{DType::f32, std::move(dims)}; };
  const Tensor tokens = b.input("tokens", {DType::i32, {batch, time}});
  const Tensor targets = b.input("targets", {DType::i32, {batch, time}});
  const Tensor words = b.state("words", f32({vocab, embed}));
  const Tensor places = b.state("places", f32({time, embed}));
  const std::vector<Tensor> parts = {
      b.state("norm1.scale", f32({layer, embed})),
      b.state("norm1.shift", f32({layer, embed})),
      b.state("qkv", f32({layer, embed, {"three", 3}, heads, head})),
      b.state("out", f32({layer, heads, head, embed})),
      b.state("norm2.scale", f32({layer, embed})),
      b.state("norm2.shift", f32({layer, embed})),
      b.state("up", f32({layer, embed, hidden})),
      b.state("up.bias", f32({layer, hidden})),
      b.state("down", f32({layer, hidden, embed})),
  };
  const Tensor x = b.gather(words, tokens, "vocab") + places;
  const auto y = b.repeat(
      {.count = layers}, {x}, parts,
      [&](Builder& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& p) {
        const Tensor& in = carried[0];
        const Tensor normal = body.layer_norm(in, p[0], p[1], "embed");
        const Tensor qkv = body.matmul(normal, p[2], {"embed"});
        std::vector<Tensor> each;
        for (int64_t i = 0; i < 3; ++i)
          each.push_back(body.reshape(body.slice(qkv, "three", i, 1), {batch, time, heads, head}));
        const Tensor attended = body.attention(each[0], body.rename(each[1], "time", "keys"),
                                               body.rename(each[2], "time", "keys"));
        const Tensor middle = in + body.matmul(attended, p[3], {"heads", "head"});
        const Tensor again = body.layer_norm(middle, p[4], p[5], "embed");
        const Tensor up = body.gelu(body.matmul(again, p[6], {"embed"}) + p[7]);
        return std::vector<Tensor>{middle + body.matmul(up, p[8], {"hidden"})};
      });
  REQUIRE(y.size() == 1);
  const Tensor losses = b.linear_cross_entropy(y[0], words, targets, "embed", "vocab");
  b.output("loss", b.mean(losses, {"batch", "time"}));
  auto graph = b.build();
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  return *std::move(graph);
}

}  // namespace tutti
