// The model of gpt.py in C++, weight for weight and operation for operation.
//
//   gpt --graph [LAYERS HEADS WIDTH CONTEXT VOCABULARY]    prints the graph of its loss
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "compile/model.h"

using namespace tutti;

namespace {

struct GptConfig {
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
  int64_t context = 1024;  // the longest sequence
  int64_t vocabulary = 50257;
  double dropout = 0;
};

constexpr double kDeviation = 0.02;

class Gpt {
 public:
  Gpt(ModelBuilder& model, GptConfig config) : m_(model), config_(config) {}

  Tensor features(const Tensor& tokens) {
    wte_ = parameter("wte", "weight", {{"vocab", config_.vocabulary}, embed_}, normal(kDeviation));
    const Tensor wpe =
        parameter("wpe", "weight", {{"place", config_.context}, embed_}, normal(kDeviation));
    Builder& b = m_.ops();
    const Tensor words = b.gather(wte_, tokens, "vocab");
    const Tensor places = m_.positions("time", tokens.type().size_of("time"));
    const Tensor x = words + b.gather(wpe, places, "place");
    const Tensor y = m_.layers(config_.layers, "h", m_.dropout(x, config_.dropout),
                               [&](const Tensor& in) { return block(in); });
    return norm(y, "ln_f");
  }

  Tensor logits(const Tensor& tokens) {
    const Tensor x = features(tokens);
    return m_.ops().matmul(x, wte_, {"embed"});
  }

  // The mean of a batch.
  Tensor loss(const Tensor& tokens, const Tensor& targets) {
    const Tensor x = features(tokens);
    Builder& b = m_.ops();
    return b.mean(b.linear_cross_entropy(x, wte_, targets, "embed", "vocab"), {"batch", "time"});
  }

 private:
  Tensor parameter(std::string_view module, std::string_view name, Dims dims, Init init) {
    const auto scope = m_.scope(module);
    const bool decay = dims.size() > 1;
    return m_.parameter(name, std::move(dims), init, decay);
  }

  Tensor linear(const Tensor& x, std::string_view name, const Dim& in, const Dim& out,
                double deviation) {
    const Tensor weight = parameter(name, "weight", {in, out}, normal(deviation));
    const Tensor bias = parameter(name, "bias", {out}, kZeros);
    return m_.ops().matmul(x, weight, {in.name}) + bias;
  }

  Tensor norm(const Tensor& x, std::string_view name) {
    const Tensor weight = parameter(name, "weight", {embed_}, kOnes);
    const Tensor bias = parameter(name, "bias", {embed_}, kZeros);
    return m_.ops().layer_norm(x, weight, bias, "embed");
  }

  // Queries, keys or values of all heads, out of what holds them side by side.
  Tensor heads(const Tensor& qkv, int64_t which) {
    Builder& b = m_.ops();
    const Tensor part = b.slice(qkv, "qkv", which * config_.width, config_.width);
    Dims dims = qkv.type().dims;
    dims.pop_back();
    dims.push_back({"heads", config_.heads});
    dims.push_back({"head", config_.width / config_.heads});
    return b.reshape(part, dims);
  }

  Tensor attention(const Tensor& x) {
    const auto scope = m_.scope("attn");
    const Tensor qkv = linear(x, "c_attn", embed_, {"qkv", 3 * config_.width}, kDeviation);
    const Tensor q = heads(qkv, 0);
    const Tensor k = heads(qkv, 1);
    const Tensor v = heads(qkv, 2);
    Builder& b = m_.ops();
    const Tensor keys = b.rename(k, "time", "keys");
    const Tensor mixed = m_.attention(q, keys, b.rename(v, "time", "keys"));
    const Dim joined{"mixed", config_.width};
    const Tensor flat = b.reshape(mixed, {mixed.type().dims[0], mixed.type().dims[1], joined});
    return linear(flat, "c_proj", joined, embed_, residual_);
  }

  Tensor mlp(const Tensor& x) {
    const auto scope = m_.scope("mlp");
    const Dim hidden{"hidden", 4 * config_.width};
    const Tensor up = linear(x, "c_fc", embed_, hidden, kDeviation);
    return linear(m_.ops().gelu(up, true), "c_proj", hidden, embed_, residual_);
  }

  Tensor block(const Tensor& in) {
    const Tensor middle = in + m_.dropout(attention(norm(in, "ln_1")), config_.dropout);
    return middle + m_.dropout(mlp(norm(middle, "ln_2")), config_.dropout);
  }

  ModelBuilder& m_;
  GptConfig config_;
  Dim embed_{"embed", config_.width};
  double residual_ = kDeviation / std::sqrt(2.0 * static_cast<double>(config_.layers));
  Tensor wte_;
};

Result<Model> gpt_loss(const GptConfig& config, int64_t batch, int64_t time) {
  ModelBuilder m("gpt");
  const Type sequences{DType::i32, {{"batch", batch}, {"time", time}}};
  const Tensor tokens = m.input("tokens", sequences);
  const Tensor targets = m.input("targets", sequences);
  m.output("loss", Gpt(m, config).loss(tokens, targets));
  return m.build();
}

int print_graph(int count, char** numbers) {
  GptConfig config;
  int64_t* const sizes[] = {&config.layers, &config.heads, &config.width, &config.context,
                            &config.vocabulary};
  for (int i = 0; i < count && i < 5; ++i) *sizes[i] = std::atoll(numbers[i]);
  const auto model = gpt_loss(config, 2, config.context);
  if (!model) {
    std::fprintf(stderr, "gpt: %s\n", model.error().text().c_str());
    return 1;
  }
  std::fputs(model->graph.text().c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--graph") return print_graph(argc - 2, argv + 2);
  std::fputs("usage: gpt --graph [LAYERS HEADS WIDTH CONTEXT VOCABULARY]\n", stderr);
  return 2;
}
