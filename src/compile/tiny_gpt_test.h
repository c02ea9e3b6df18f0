// The smallest GPT that has everything a large one has.
#pragma once

#include <doctest/doctest.h>

#include "compile/builder.h"

namespace tutti {

// With its loss.
inline Graph tiny_gpt(int64_t layers) {
  Builder b("gpt");
  const Dim batch{"batch", 2};
  const Dim time{"time", 3};
  const Dim embed{"embed", 4};
  const Dim heads{"heads", 2};
  const Dim head{"head", 2};
  const Dim vocab{"vocab", 5};
  const Dim layer{"layer", layers};
  const Dim hidden{"hidden", 8};
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
