#include "compile/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace tutti {

std::string_view init_name(InitKind kind) {
  switch (kind) {
    case InitKind::zeros: return "zeros";
    case InitKind::ones: return "ones";
    case InitKind::normal: return "normal";
    case InitKind::uniform: return "uniform";
  }
  return "?";
}

std::string_view use_name(ModelUse use) {
  switch (use) {
    case ModelUse::train: return "train";
    case ModelUse::evaluate: return "evaluate";
    case ModelUse::generate: return "generate";
  }
  return "?";
}

Result<ModelUse> use_named(std::string_view name) {
  for (const ModelUse use : {ModelUse::train, ModelUse::evaluate, ModelUse::generate})
    if (use_name(use) == name) return use;
  return fail(Code::invalid, "a model is used to train, evaluate or generate, not to '{}'", name);
}

std::string layer_name(std::string_view name, int64_t layer) {
  std::string whole(name);
  if (const size_t star = whole.find('*'); star != std::string::npos)
    whole.replace(star, 1, std::to_string(layer));
  return whole;
}

const Parameter* Model::parameter(std::string_view name) const {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  return found == parameters.end() ? nullptr : &*found;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& each : parameters) count += each.type.elements();
  return count;
}

ModelBuilder::ModelBuilder(std::string name, ModelUse use, int64_t seed)
    : use_(use), seed_(seed), graph_(std::move(name)) {}

ModelBuilder::Scope::Scope(ModelBuilder& model, std::string_view name)
    : model_(model), length_(model.path_.size()) {
  model_.path_ = model_.whole_name(name);
}

std::string ModelBuilder::whole_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

Tensor ModelBuilder::parameter(std::string_view name, Dims dims, Init init, bool decay) {
  if (layers_ != nullptr) dims.insert(dims.begin(), Dim{kLayerDim, layer_count_});
  const std::string whole = whole_name(name);
  declare({whole, {DType::f32, std::move(dims)}, init, decay});
  return weight(whole);
}

void ModelBuilder::declare(Parameter parameter) {
  if (graph_.graph().input(parameter.name) != nullptr)
    return refuse(fmt::format("two parameters are named {}; name one otherwise", parameter.name));
  if (std::ranges::count(parameter.name, '*') > 1)
    return refuse(fmt::format("{}: layers within layers cannot be repeated", parameter.name));
  const Tensor made = graph_.state(parameter.name, parameter.type);
  if (!made) return;
  weights_.push_back(made);
  parameters_.push_back(std::move(parameter));
}

Tensor ModelBuilder::weight(std::string_view name) {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  if (found == parameters_.end()) {
    // Why it could not be made was told.
    if (!error()) refuse(fmt::format("there is no parameter {}", name));
    return {};
  }
  const Tensor& whole = weights_[static_cast<size_t>(found - parameters_.begin())];
  if (!found->stacked()) return whole;
  const bool here = layers_ != nullptr && name.size() > layers_path_.size() &&
                    name.starts_with(layers_path_) && name[layers_path_.size()] == '.';
  if (!here) {
    refuse(
        fmt::format("parameter {} is one of a repeated layer's and is used outside of it", name));
    return {};
  }
  return layers_->part(whole);
}

Tensor ModelBuilder::layers(int64_t count, std::string_view name, const Tensor& x,
                            const Layer& layer) {
  const Tensor in = open_layers(count, name, x);
  if (!in) return {};
  return close_layers(layer(in));
}

Tensor ModelBuilder::open_layers(int64_t count, std::string_view name, const Tensor& x) {
  if (layers_ != nullptr) {
    refuse(fmt::format("{}: layers within layers cannot be repeated", whole_name(name)));
    return {};
  }
  if (count < 1) {
    refuse(fmt::format("{}: there must be 1 or more layers, not {}", whole_name(name), count));
    return {};
  }
  if (!x) return {};
  bodies_.push_back(graph_.open_body({.count = count, .stack = kLayerDim}, {x}));
  layers_ = bodies_.back().get();
  layer_count_ = count;
  layer_draws_ = {};
  outer_path_ = path_.size();
  path_ = layers_path_ = whole_name(fmt::format("{}.*", name));
  return layers_->carried()[0];
}

Tensor ModelBuilder::close_layers(const Tensor& y) {
  TUTTI_ASSERT(layers_ != nullptr, "layers are open");
  const Tensor in = layers_->carried()[0];
  if (y && y.type() != in.type())
    refuse(fmt::format("{}: a layer makes {} of {}; the next one takes what it took itself",
                       layers_path_, y.type().text(), in.type().text()));
  Builder& body = *layers_;
  layers_ = nullptr;
  path_.resize(outer_path_);
  std::vector<Tensor> returned{y};
  for (const auto& [name, cache] : next_caches_) returned.push_back(cache);
  const auto results = graph_.close_body(body, returned);
  for (size_t i = 1; i < results.size(); ++i) graph_.output(next_caches_[i - 1].first, results[i]);
  next_caches_.clear();
  return results.empty() ? Tensor() : results[0];
}

void ModelBuilder::keep_cache(const CacheShape& shape) {
  if (use_ != ModelUse::generate) return refuse("only a model that generates keeps caches");
  if (shape.sequences < 1 || shape.places < 1)
    return refuse(fmt::format("caches of {} sequences of {} places cannot be", shape.sequences,
                              shape.places));
  cache_ = shape;
  position_ = graph_.input(kPositionInput, {DType::i64, {{kBatchDim, shape.sequences}}});
}

Tensor ModelBuilder::positions(const std::string& dim, int64_t size) {
  if (!position_) return ops().iota(dim, {DType::i32, {{dim, size}}});
  // What fills up the last piece of a sequence may lie past the end; it is never seen.
  Builder& b = ops();
  const Tensor place = position_ + b.iota(dim, {DType::i64, {{dim, size}}});
  const Tensor last = b.constant(static_cast<double>(cache_.places - 1), {DType::i64, {}});
  return b.cast(b.binary(OpKind::minimum, place, last), DType::i32);
}

Tensor ModelBuilder::cached(std::string_view name, const Tensor& rows,
                            const AttentionOptions& options) {
  // A head's rows lie side by side, as attention reads them.
  const auto place = rows.type().find(options.key);
  if (!place || !rows.type().has(options.head)) {
    refuse(fmt::format("attention: {} has no dimensions {} and {}", rows.type().text(), options.key,
                       options.head));
    return {};
  }
  Dims dims = rows.type().without({options.key, options.head}).dims;
  dims.push_back({options.key, cache_.places});
  dims.push_back({options.head, rows.type().size_of(options.head)});
  Names order;
  for (const Dim& dim : dims) order.push_back(dim.name);
  if (layers_ != nullptr) dims.insert(dims.begin(), Dim{kLayerDim, layer_count_});
  std::string full = kCachePrefix + whole_name(name);
  for (int same = 1; graph_.graph().input(full) != nullptr; ++same)
    full = fmt::format("{}{}#{}", kCachePrefix, whole_name(name), same);
  const Tensor whole = graph_.state(full, {rows.type().dtype, std::move(dims)});
  const Tensor before = layers_ == nullptr ? whole : layers_->part(whole);
  const Tensor next = ops().update(before, ops().transpose(rows, order), position_, options.key);
  if (layers_ == nullptr)
    graph_.output(full, next);
  else
    next_caches_.emplace_back(full, next);
  return next;
}

Tensor ModelBuilder::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               const AttentionOptions& options) {
  if (!position_ || !q || !k || !v) return ops().attention(q, k, v, options);
  if (!options.causal) {
    refuse("attention that looks ahead cannot be computed piece by piece; make it causal");
    return {};
  }
  const Tensor keys = cached("keys", k, options);
  const Tensor values = cached("values", v, options);
  return ops().attention(q, keys, values, position_, options);
}

Tensor ModelBuilder::draw() {
  if (!draw_) draw_ = graph_.input(kDrawInput, {DType::i64, {}});
  if (layers_ == nullptr) return draw_;
  if (!layer_draws_) {
    const Tensor each = graph_.iota(kLayerDim, {DType::i64, {{kLayerDim, layer_count_}}});
    layer_draws_ = each + draw_ * static_cast<double>(layer_count_);
  }
  return layers_->part(layer_draws_);
}

Tensor ModelBuilder::dropout(const Tensor& x, double rate, std::string_view name) {
  if (!x) return {};
  if (!(rate >= 0 && rate < 1)) {
    refuse(fmt::format("dropout: {} is not a probability from 0 to below 1", rate));
    return {};
  }
  if (rate == 0 || use_ != ModelUse::train) return x;
  std::string stream = whole_name(name);
  const auto same = std::ranges::count(streams_, stream);
  streams_.push_back(stream);
  if (same != 0) stream += fmt::format("#{}", same);
  Builder& b = ops();
  const Tensor bits = b.random(draw(), seed_, stream, x.type().dims);
  const double bound = std::floor(rate * 0x1p32);
  const Tensor dropped = b.binary(OpKind::less, bits, b.constant(bound, {DType::u32, {}}));
  const Tensor zero = b.constant(0, x.type());
  return b.select(dropped, zero, x * (1 / (1 - rate)));
}

Result<Model> ModelBuilder::build() {
  if (layers_ != nullptr) refuse(fmt::format("{}: its layers were not closed", layers_path_));
  if (const auto& wrong = error()) return fail(*wrong);
  TRY(Graph graph, graph_.build());
  // Last, wherever the first dropout was: who declares all weights first makes the same graph.
  std::ranges::stable_partition(graph.inputs,
                                [](const Input& each) { return each.name != kDrawInput; });
  return Model{std::move(graph), std::move(parameters_)};
}

}  // namespace tutti
