#include "train/step_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "compile/autodiff.h"
#include "compile/chunk.h"
#include "train/lane_fold.h"
#include "train/workers.h"

namespace tutti {
namespace {

// Added to the norm before something is divided by it, as PyTorch does.
constexpr double kNormEpsilon = 1e-6;
constexpr int64_t kMostAtoms = 1 << 20;  // a step's program grows with them

Result<void> check_model(const Model& model) {
  const Output* loss = model.graph.output("loss");
  if (loss == nullptr)
    return fail(Code::invalid, "model {} has no output \"loss\" to train for", model.graph.name);
  for (const Parameter& parameter : model.parameters) {
    const Input* input = model.graph.input(parameter.name);
    if (input == nullptr || input->role != InputRole::state)
      return fail(Code::invalid, "parameter {} is no state of model {}", parameter.name,
                  model.graph.name);
    if (parameter.type.dtype != DType::f32)
      return fail(Code::unsupported, "parameter {} is {}; only f32 is trained", parameter.name,
                  parameter.type.text());
  }
  if (model.parameters.empty())
    return fail(Code::invalid, "model {} has no parameters to train", model.graph.name);
  return {};
}

Names parameter_names(const Model& model) {
  Names names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  return names;
}

Graph with_loss_alone(Graph graph) {
  std::erase_if(graph.outputs, [](const Output& output) { return output.name != "loss"; });
  return graph;
}

Result<void> check_lanes(const StepOptions& options) {
  if (options.atoms < 1 || options.atoms > kMostAtoms)
    return fail(Code::invalid, "{} atoms in a step; use 1 to {}", options.atoms, kMostAtoms);
  if (options.lanes < 1 || options.lanes > kMostLanes)
    return fail(Code::invalid, "{} lanes; use 1 to {}", options.lanes, kMostLanes);
  if (options.atoms % options.lanes != 0)
    return fail(Code::invalid,
                "{} atoms cannot be dealt to {} lanes evenly; use as many lanes as divide them",
                options.atoms, options.lanes);
  const LaneRange own = options.own_lanes;
  if (own.count < 1 || own.first + own.count > options.lanes)
    return fail(Code::invalid, "lanes {} to {} are not among {}", own.first,
                own.first + own.count - 1, options.lanes);
  return {};
}

// Small gradients are summed with all workers as one tensor: a call costs more than they do.
constexpr int64_t kSmallElements = 16'384;

Tensor flat(Builder& b, const Tensor& x) {
  return b.reshape(x, {{"element", x.type().elements()}});
}

// Nothing if it was refused.
Tensor only(const std::vector<Tensor>& made) { return made.empty() ? Tensor() : made[0]; }

// The sums over all lanes of what this worker has of each node, and the worker's part of them.
class LaneSums {
 public:
  LaneSums(Builder& b, const Model& model, const std::vector<Gradients>& nodes,
           const StepOptions& options, const LaneFoldOptions& lanes)
      : b_(b),
        model_(model),
        sharding_(options.sharding),
        attributes_(lane_attributes(lanes)),
        alone_(lanes.own.count == lanes.lanes) {
    for (const Gradients& node : nodes) nodes_.push_back(node.all());
  }

  // Gradients of parted parameters are this worker's shards.
  Gradients run() {
    std::vector<Tensor> sums = nodes_[0];
    if (!alone_) {
      std::vector<size_t> small;
      for (size_t i = 0; i < sums.size(); ++i) {
        const Shards shards = i == 0 ? Shards{} : shards_of(model_.parameters[i - 1], sharding_);
        if (shards.parted()) {
          sums[i] = scattered(parts_of(i), shards);
        } else if (sums[i].type().elements() <= kSmallElements) {
          small.push_back(i);
        } else {
          sums[i] = one(OpKind::lane_all_reduce, parts_of(i), attributes_);
        }
      }
      sum_together(small, sums);
    }
    return {.loss = sums[0], .of = {sums.begin() + 1, sums.end()}};
  }

 private:
  std::vector<Tensor> parts_of(size_t i) const {
    std::vector<Tensor> parts;
    for (const auto& node : nodes_) parts.push_back(node[i]);
    return parts;
  }

  Tensor one(OpKind kind, const std::vector<Tensor>& parts, const Attributes& attributes) {
    return only(b_.add(kind, parts, attributes));
  }

  // Of stacked gradients layer by layer; unless that was done where they were made.
  Tensor scattered(const std::vector<Tensor>& parts, const Shards& shards) {
    if (parts[0].type().elements() != shards.rows * shards.row)
      return b_.reshape(parts[0], shards.type().dims);
    const Attributes attributes = shards.attributes(attributes_);
    if (shards.rows == 1) return one(OpKind::lane_reduce_scatter, parts, attributes);
    const auto made =
        b_.repeat({.count = shards.rows, .stack = "layer"}, {}, parts,
                  [&](Builder& body, const std::vector<Tensor>&, const std::vector<Tensor>& layer) {
                    return body.add(OpKind::lane_reduce_scatter, layer, attributes);
                  });
    return only(made);
  }

  void sum_together(const std::vector<size_t>& which, std::vector<Tensor>& sums) {
    std::vector<Tensor> joined;
    for (const auto& node : nodes_) {
      std::vector<Tensor> parts;
      for (const size_t i : which) parts.push_back(flat(b_, node[i]));
      joined.push_back(b_.concat(parts, "element"));
    }
    const Tensor together = one(OpKind::lane_all_reduce, joined, attributes_);
    int64_t start = 0;
    for (const size_t i : which) {
      const Type type = nodes_[0][i].type();  // which moves as the graph grows
      sums[i] = b_.reshape(b_.slice(together, "element", start, type.elements()), type.dims);
      start += type.elements();
    }
  }

  Builder& b_;
  const Model& model_;
  ShardingOptions sharding_;
  Attributes attributes_;
  bool alone_;
  std::vector<std::vector<Tensor>> nodes_;
};

// The squared norm of gradients of which this worker has shards: the sums of all canonical chunks,
// in the order of the tensors, joined as if one worker had made them.
Tensor squared_norm(Builder& b, const std::vector<Shards>& all,
                    const std::vector<Tensor>& gradients, const ShardingOptions& sharding) {
  if (std::ranges::none_of(all, &Shards::parted)) return b.squared_norm(gradients);
  std::vector<Tensor> sums;
  std::vector<Tensor> parted;
  for (const Tensor& gradient : gradients)
    sums.push_back(only(b.add(OpKind::square_chunks, {gradient}, {})));
  std::vector<int64_t> counts(sharding.workers);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].parted()) continue;
    parted.push_back(sums[i]);
    for (uint32_t of = 0; of < sharding.workers; ++of)
      counts[of] += all[i].rows * chunks_of(all[i].counts[of]);
  }
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Type whole{DType::f32, {{"chunk", total}}};
  const Tensor gathered = only(
      b.add(OpKind::shard_gather, {b.concat(parted, "chunk")},
            {{"axis", kDataAxis}, {"counts", counts}, {"rank", int64_t{sharding.worker}}}, &whole));
  // Worker after worker has those of its shards of all tensors.
  std::vector<std::vector<Tensor>> pieces(all.size());
  int64_t start = 0;
  for (uint32_t of = 0; of < sharding.workers; ++of)
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].parted()) continue;
      const int64_t each = chunks_of(all[i].counts[of]);
      const Tensor some = b.slice(gathered, "chunk", start, all[i].rows * each);
      pieces[i].push_back(b.reshape(some, {{"layer", all[i].rows}, {"chunk", each}}));
      start += all[i].rows * each;
    }
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].parted()) continue;
    const Tensor layers = b.concat(pieces[i], "chunk");
    if (!layers) return {};
    sums[i] = b.reshape(layers, {{"chunk", layers.type().elements()}});
  }
  return only(b.add(OpKind::join_chunks, {b.concat(sums, "chunk")}, {}));
}

// The same of gradients that lie over a mesh: of those that lie along the same axes together; sums
// over these, and then all.
Tensor squared_norm(Builder& b, const Model& model, const Gradients& gradients,
                    const std::vector<LocalTensor>& parts, const StepOptions& options) {
  std::map<Names, std::vector<size_t>> along;
  for (size_t i = 0; i < parts.size(); ++i) along[parts[i].sharding.axes()].push_back(i);
  Tensor total;
  for (const auto& [axes, which] : along) {
    std::vector<Shards> shards;
    std::vector<Tensor> of;
    for (const size_t i : which) {
      shards.push_back(shards_of(model.parameters[i], options.sharding));
      of.push_back(gradients.of[i]);
    }
    Tensor sum = squared_norm(b, shards, of, options.sharding);
    for (const std::string& axis : axes)
      sum = only(b.add(OpKind::all_reduce, {sum},
                       {{"axis", axis}, {"ranks", options.place.mesh.size_of(axis)}}));
    total = total ? total + sum : sum;
  }
  return total;
}

// AdamW of a parameter: of all of it, or of this worker's shard, from which the others take what
// they keep whole.
void add_update(Builder& b, const Parameter& parameter, const StepOptions& options,
                const Tensor& gradient, const Tensor& scale) {
  AdamWOptions adamw = options.adamw;
  if (!parameter.decay) adamw.decay = 0;
  const Shards shards = shards_of(parameter, options.sharding);
  const Type moments = moments_type(parameter, options.sharding);
  const std::string first = first_moment_name(parameter.name);
  const std::string second = second_moment_name(parameter.name);
  const Tensor weight = b.tensor(b.graph().input(parameter.name)->value);
  const bool keeps_more = weight.type() != moments;
  const Tensor own =
      keeps_more ? b.rename(b.slice(flat(b, weight), "element", shards.own_first(), shards.own()),
                            "element", "shard")
                 : weight;
  const Tensor old_first = b.state(first, moments);
  const Tensor old_second = b.state(second, moments);
  auto next =
      b.adamw(own, old_first, old_second, gradient, scale, b.tensor(b.graph().input("rate")->value),
              b.tensor(b.graph().input("step")->value), adamw);
  if (keeps_more && !next.empty())
    next[0] = only(b.add(OpKind::shard_gather, {next[0]}, shards.attributes(), &parameter.type));
  if (next.empty() || b.error()) return;
  b.output(parameter.name, next[0]);
  b.output(first, next[1]);
  b.output(second, next[2]);
}

void add_optimizer(Builder& b, const Model& model, const Gradients& gradients,
                   const std::vector<LocalTensor>& parts, const StepOptions& options) {
  b.at("");
  const double share = 1.0 / static_cast<double>(options.atoms);
  const Tensor squares = squared_norm(b, model, gradients, parts, options);
  const Tensor norm = b.unary(OpKind::sqrt, squares) * share;
  b.input("rate", {DType::f32, {}});
  b.input("step", {DType::i64, {}});
  Tensor scale = b.constant(share, norm.type());
  if (options.max_norm > 0)
    scale = b.binary(OpKind::minimum, options.max_norm / (norm + kNormEpsilon),
                     b.constant(1, norm.type())) *
            share;
  b.output("loss", gradients.loss);
  b.output("norm", norm);
  for (size_t i = 0; i < model.parameters.size(); ++i)
    add_update(b, model.parameters[i], options, gradients.of[i], scale);
}

}  // namespace

std::string first_moment_name(std::string_view parameter) {
  return fmt::format("first/{}", parameter);
}
std::string second_moment_name(std::string_view parameter) {
  return fmt::format("second/{}", parameter);
}

Result<std::vector<LocalTensor>> parameter_parts(const Model& model, const ModelPlace& place) {
  TRY_DO(check_model(model));
  TRY(ModelPart part, part_of_model(with_loss_alone(model.graph), model, place));
  return std::move(part.parameters);
}

Result<Graph> training_step(const Model& whole, const StepOptions& options) {
  TRY_DO(check_model(whole));
  TRY_DO(check_lanes(options));
  TRY(const Graph gradients_of_whole,
      differentiate(with_loss_alone(whole.graph), "loss", parameter_names(whole)));
  TRY(ModelPart part, part_of_model(gradients_of_whole, whole, options.place));
  TRY(const std::vector<LocalTensor> parameters, parameter_parts(whole, options.place));
  TRY_DO(check_alike(part.parameters, parameters));
  Graph differentiated = std::move(part.graph);
  Model model{.graph = {}, .parameters = part.own(whole)};
  model.graph.name = whole.graph.name;
  if (options.atoms == 1) {
    Builder b(std::move(differentiated));
    const Gradients gradients = take_gradients(b, model);
    add_optimizer(b, model, gradients, part.parameters, options);
    return b.build();
  }
  LaneFoldOptions lanes{.lanes = options.lanes,
                        .own = options.own_lanes,
                        .atoms_of_lane = options.atoms / options.lanes};
  const ShardingOptions& sharding = options.sharding;
  // Where workers have different numbers of lanes, not all could gather for each.
  if (sharding.what == ShardedState::all && lanes.lanes % sharding.workers != 0) {
    lanes.gathers = sharding;
  } else if (sharding.what == ShardedState::all) {
    TRY(differentiated, gather_weights(differentiated, model, sharding));
    // Else a worker sums its own atoms and lanes before it may tell the others.
    if (lanes.lanes == sharding.workers && lanes.atoms_of_lane == 1) {
      TRY(differentiated,
          scatter_gradients(std::move(differentiated), model, sharding, lane_attributes(lanes)));
    }
  }
  Builder b(model.graph.name);
  TRY(const std::vector<Gradients> nodes, fold_lanes(b, model, differentiated, lanes));
  Gradients gradients = LaneSums(b, model, nodes, options, lanes).run();
  if (b.error()) return fail(*b.error());
  gradients.loss = gradients.loss * (1.0 / static_cast<double>(options.atoms));
  add_optimizer(b, model, gradients, part.parameters, options);
  return b.build();
}

Result<Graph> evaluation_step(const Model& whole, const ShardingOptions& sharding,
                              const ModelPlace& place) {
  TRY_DO(check_model(whole));
  TRY(ModelPart part, part_of_model(with_loss_alone(whole.graph), whole, place));
  if (sharding.what != ShardedState::all) return std::move(part.graph);
  return gather_weights(part.graph, {.graph = {}, .parameters = part.own(whole)}, sharding);
}

}  // namespace tutti
