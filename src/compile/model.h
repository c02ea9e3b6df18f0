// A model: the graph of its loss, and what its weights are called and begin with.
//
//   ModelBuilder m("mlp");
//   Tensor x = m.input("x", {DType::f32, {{"batch", 16}, {"embed", 384}}});
//   x = m.layers(6, "blocks", x, [&](const Tensor& in) {
//     const auto scope = m.scope("mlp");  // weights within: "blocks.*.mlp.…"
//     const Tensor w = m.parameter("weight", {{"embed", 384}, {"hidden", 384}}, normal(0.02));
//     return in + m.ops().rename(m.ops().matmul(in, w, {"embed"}), "hidden", "embed");
//   });
//   m.output("y", x);
//   TRY(Model model, m.build());
//
// Python's modules are a thin dress over this one (python/tutti/nn). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/builder.h"

namespace tutti {

enum class InitKind : uint8_t { zeros, ones, normal, uniform };

std::string_view init_name(InitKind kind);

// What a weight is before the first step.
struct Init {
  InitKind kind = InitKind::zeros;
  double scale = 0;  // of normal the deviation, of uniform half the width

  bool operator==(const Init&) const = default;
};

inline Init normal(double deviation) { return {InitKind::normal, deviation}; }
inline Init uniform(double half_width) { return {InitKind::uniform, half_width}; }
constexpr Init kZeros{InitKind::zeros, 0};
constexpr Init kOnes{InitKind::ones, 0};

// A weight. Those of repeated layers are one tensor whose first dimension counts layers; its name
// has a "*" where files have the layer's number: "blocks.*.mlp.weight".
struct Parameter {
  std::string name;
  Type type;
  Init init;
  bool decay = true;  // whether the optimizer pulls it towards zero

  bool operator==(const Parameter&) const = default;
  bool stacked() const { return name.find('*') != std::string::npos; }
};

// The name of one layer's part in files: "blocks.*.mlp.weight" -> "blocks.3.mlp.weight".
std::string layer_name(std::string_view name, int64_t layer);

// A model as a trainer sees it: a graph whose states are the parameters (same names and order),
// whose data inputs are a batch ("tokens", "targets": i32[batch, time] for language models), and
// whose output "loss" is the mean loss of that batch; or, for use without training, other outputs
// ("logits").
//
// A model with dropout has one more input, kDrawInput: i64[], a number that no other batch of the
// run has, of which its random bits are made.
struct Model {
  Graph graph;
  std::vector<Parameter> parameters;

  const Parameter* parameter(std::string_view name) const;
  int64_t parameter_count() const;  // elements of all of them
};

constexpr const char* kDrawInput = "draw";
constexpr const char* kLayerDim = "layer";

// What the model is traced for; its code is the same.
enum class ModelUse : uint8_t {
  train,
  evaluate,  // nothing is dropped
  generate,  // nor here
};

// A model that is given its sequences piece by piece keeps their keys and values in caches, which
// are states: attention() sees what came before, and places count from the input kPositionInput:
// i64[batch], how much of each sequence came before.
struct CacheShape {
  int64_t sequences;
  int64_t places;  // the longest a sequence may become
};

constexpr const char* kBatchDim = "batch";
constexpr const char* kPositionInput = "position";
constexpr const char* kCachePrefix = "cache/";  // of the names of caches

std::string_view use_name(ModelUse use);
Result<ModelUse> use_named(std::string_view name);

class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name, ModelUse use = ModelUse::train, int64_t seed = 0);
  ModelBuilder(const ModelBuilder&) = delete;
  ModelBuilder& operator=(const ModelBuilder&) = delete;

  ModelUse use() const { return use_; }
  // Only when it is to generate, and before attention or positions are asked for.
  void keep_cache(const CacheShape& shape);
  // Where operations are made now: the body of the layers that are open, or the graph.
  Builder& ops() { return layers_ == nullptr ? graph_ : *layers_; }
  // The line of the user's that what follows is made for.
  void at(const std::string& where) { ops().at(where); }

  Tensor input(std::string name, Type type) {
    return graph_.input(std::move(name), std::move(type));
  }
  void output(std::string name, const Tensor& value) { graph_.output(std::move(name), value); }

  // Puts a name in front of those of parameters, until it goes.
  class [[nodiscard]] Scope {
   public:
    Scope(ModelBuilder& model, std::string_view name);
    ~Scope() { model_.path_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ModelBuilder& model_;
    size_t length_;
  };
  Scope scope(std::string_view name) { return {*this, name}; }

  // A new weight; within layers one for each of them, of which this is the round's.
  Tensor parameter(std::string_view name, Dims dims, Init init, bool decay = true);

  // The same in two steps, for who knows all names beforehand: makes a weight under its whole name
  // (with a "*": one for each of `count` layers), and gives what the place where operations are
  // made now sees of it.
  void declare(Parameter parameter);
  Tensor weight(std::string_view name);

  // x through `count` equal layers with weights of their own, under this name.
  using Layer = std::function<Tensor(const Tensor& x)>;
  Tensor layers(int64_t count, std::string_view name, const Tensor& x, const Layer& layer);
  // The same in steps: what a layer sees of x; what comes out of the last one.
  Tensor open_layers(int64_t count, std::string_view name, const Tensor& x);
  Tensor close_layers(const Tensor& y);

  // Operations that depend on the use.
  //
  // The place of each element along `dim` in its sequence: i32[dim]; with caches, whose sequences
  // are each somewhere else, i32[batch, dim].
  Tensor positions(const std::string& dim, int64_t size);
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                   const AttentionOptions& options = {});
  // Zero with probability `rate`, the others larger by as much, when training. Which ones follows
  // from the seed, the name (unique in its layer), the layer and the input kDrawInput.
  Tensor dropout(const Tensor& x, double rate, std::string_view name = "dropout");

  Result<Model> build();
  const std::optional<Error>& error() { return ops().error() ? ops().error() : graph_.error(); }

 private:
  void refuse(std::string message) { ops().refuse(Error(Code::invalid, std::move(message))); }
  std::string whole_name(std::string_view name) const;
  // i64[], another for each batch and layer.
  Tensor draw();
  // What a cache holds once these rows are in it.
  Tensor cached(std::string_view name, const Tensor& rows, const AttentionOptions& options);

  ModelUse use_;
  int64_t seed_;
  Builder graph_;
  std::vector<Parameter> parameters_;
  std::vector<Tensor> weights_;  // as the graph has them
  std::vector<std::string> streams_;
  std::string path_;
  // Bodies of layers, kept when they are closed so that their tensors stay what they were.
  std::vector<std::unique_ptr<Builder>> bodies_;
  Builder* layers_ = nullptr;
  int64_t layer_count_ = 0;
  size_t outer_path_ = 0;
  std::string layers_path_;  // "blocks.*"
  CacheShape cache_{};
  Tensor position_;  // when there are caches
  // Caches of the open layers, and what comes of them.
  std::vector<std::pair<std::string, Tensor>> next_caches_;
  Tensor draw_;
  Tensor layer_draws_;  // one for each of the open layers
};

}  // namespace tutti
