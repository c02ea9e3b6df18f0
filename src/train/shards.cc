#include "train/shards.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compile/autodiff.h"
#include "compile/chunk.h"
#include "compile/rewrite.h"
#include "train/workers.h"

namespace tutti {
namespace {

// What all keep whole costs them little, and a call more would cost time.
constexpr int64_t kSmallElements = 16'384;

// One graph, and the bodies in it.
class WeightGathering {
 public:
  // Of inputs, by their values: the shards that they become.
  WeightGathering(const Graph& graph, std::map<ValueId, Shards> parted)
      : graph_(graph), parted_(std::move(parted)), rewrite_(graph) {}

  Result<Graph> run() {
    for (const auto& [value, shards] : parted_)
      rewrite_.graph().types[rewrite_(value)] = shards.type();
    for (const Node& op : graph_.ops) {
      if (op.kind == OpKind::repeat) {
        TRY_DO(write_repeat(op));
        continue;
      }
      for (const ValueId operand : op.operands) TRY_DO(gather(operand, op.at));
      rewrite_.copy(op);
    }
    return std::move(rewrite_).finish();
  }

 private:
  // Once for all who use it after this.
  Result<void> gather(ValueId value, const std::string& at) {
    const auto found = parted_.find(value);
    if (found == parted_.end()) return {};
    const Shards& shards = found->second;
    if (shards.rows != 1)
      return fail(Code::unsupported,
                  "weights of layers are used outside of their layers{}{}, so they cannot be "
                  "gathered layer by layer: train this model with dp or zero1",
                  at.empty() ? "" : ", at ", at);
    const Type whole = graph_.type(value);
    rewrite_.replace(value, rewrite_.make({.kind = OpKind::shard_gather,
                                           .operands = {rewrite_(value)},
                                           .attributes = shards.attributes(),
                                           .at = at},
                                          &whole));
    parted_.erase(found);
    return {};
  }

  Result<void> write_repeat(const Node& op) {
    const RepeatShape shape = repeat_shape(op);
    std::map<ValueId, Shards> inside;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const auto found = parted_.find(op.operands[i]);
      if (found == parted_.end()) continue;
      const bool sliced = i >= shape.carried && i < shape.carried + shape.sliced;
      if (!sliced) {
        TRY_DO(gather(op.operands[i], op.at));
        continue;
      }
      Shards of_layer = found->second;
      of_layer.rows = 1;
      inside.emplace(op.body->inputs[i].value, std::move(of_layer));
    }
    if (inside.empty()) {
      rewrite_.copy(op);
      return {};
    }
    TRY(Graph body, WeightGathering(*op.body, std::move(inside)).run());
    rewrite_.copy(op, std::make_shared<const Graph>(std::move(body)));
    return {};
  }

  const Graph& graph_;
  std::map<ValueId, Shards> parted_;
  Rewrite rewrite_;
};

}  // namespace

int64_t Shards::first(uint32_t of) const {
  return std::accumulate(counts.begin(), counts.begin() + of, int64_t{0});
}

Type Shards::type() const {
  Type type{DType::f32, {{"shard", own()}}};
  if (rows != 1) type.dims.insert(type.dims.begin(), {"layer", rows});
  return type;
}

Attributes Shards::attributes(Attributes besides) const {
  besides.set("axis", std::string(kDataAxis));
  besides.set("counts", counts);
  besides.set("rank", int64_t{worker});
  return besides;
}

Shards shards_of(const Parameter& parameter, const ShardingOptions& options) {
  const int64_t elements = parameter.type.elements();
  Shards shards{.row = elements, .worker = options.worker};
  if (options.what == ShardedState::all && parameter.stacked()) {
    shards.rows = parameter.type.dims[0].size;
    shards.row /= shards.rows;
  }
  const int64_t chunks = chunks_of(shards.row);
  const bool ends_evenly = shards.rows == 1 || shards.row % kChunkElements == 0;
  if (options.what == ShardedState::none || options.workers == 1 || elements <= kSmallElements ||
      !ends_evenly || chunks < options.workers)
    return shards;
  for (int64_t worker = 0; worker < options.workers; ++worker) {
    const auto begin = [&](int64_t of) {
      return std::min(shards.row, chunks * of / options.workers * kChunkElements);
    };
    shards.counts.push_back(begin(worker + 1) - begin(worker));
  }
  return shards;
}

Type weights_type(const Parameter& parameter, const ShardingOptions& options) {
  if (options.what != ShardedState::all) return parameter.type;
  return moments_type(parameter, options);
}

Type moments_type(const Parameter& parameter, const ShardingOptions& options) {
  const Shards shards = shards_of(parameter, options);
  return shards.parted() ? shards.type() : parameter.type;
}

Result<Graph> gather_weights(const Graph& graph, const Model& model,
                             const ShardingOptions& options) {
  std::map<ValueId, Shards> parted;
  for (const Parameter& parameter : model.parameters) {
    const Input* input = graph.input(parameter.name);
    Shards shards = shards_of(parameter, options);
    if (input != nullptr && shards.parted()) parted.emplace(input->value, std::move(shards));
  }
  return WeightGathering(graph, std::move(parted)).run();
}

Tensor gathered_weights(Builder& b, const Parameter& parameter, const ShardingOptions& options) {
  const Tensor kept = b.state(parameter.name, weights_type(parameter, options));
  const Shards shards = shards_of(parameter, options);
  if (!shards.parted()) return kept;
  const auto gather = [&](Builder& in, const Tensor& shard, const Type& type) {
    return in.add(OpKind::shard_gather, {shard}, shards.attributes(), &type);
  };
  Type layer = parameter.type;
  if (shards.rows != 1) layer.dims.erase(layer.dims.begin());
  const auto made =
      shards.rows == 1
          ? gather(b, kept, layer)
          : b.repeat(
                {.count = shards.rows, .stack = parameter.type.dims[0].name}, {}, {kept},
                [&](Builder& body, const std::vector<Tensor>&, const std::vector<Tensor>& shard) {
                  return gather(body, shard[0], layer);
                });
  return made.empty() ? Tensor() : made[0];
}

Result<Graph> scatter_gradients(Graph graph, const Model& model, const ShardingOptions& options,
                                const Attributes& lanes) {
  const std::vector<uint32_t> uses = use_counts(graph);
  for (const Parameter& parameter : model.parameters) {
    const Shards shards = shards_of(parameter, options);
    const ValueId value = graph.output(gradient_name(parameter.name))->value;
    if (!shards.parted() || shards.rows == 1 || uses[value] != 1) continue;
    for (Node& op : graph.ops) {
      const auto found = std::ranges::find(op.results, value);
      if (op.kind != OpKind::repeat || found == op.results.end()) continue;
      const auto place = static_cast<size_t>(found - op.results.begin());
      if (place < repeat_shape(op).carried) break;
      Graph body = *op.body;
      TRY(const auto scattered, body.add({.kind = OpKind::lane_reduce_scatter,
                                          .operands = {body.outputs[place].value},
                                          .attributes = shards.attributes(lanes),
                                          .at = op.at}));
      body.outputs[place].value = scattered[0];
      graph.types[value] = shards.type();
      graph.types[value].dims[0].name = op.attributes.get<std::string>("stack");
      op.body = std::make_shared<const Graph>(std::move(body));
      break;
    }
  }
  return graph;
}

}  // namespace tutti
