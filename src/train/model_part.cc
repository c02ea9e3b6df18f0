#include "train/model_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compile/autodiff.h"

namespace tutti {
namespace {

// Dimensions that are split only after they were made of another one, as heads are: the pass would
// leave them whole, and every rank do the work of all.
Result<void> check_dims(const Graph& graph, const ModelPlace& place) {
  for (const Node& op : graph.ops) {
    if (op.body != nullptr) TRY_DO(check_dims(*op.body, place));
    if (op.kind != OpKind::reshape) continue;
    for (const Dim& dim : graph.type(op.results[0]).dims) {
      const auto rule = std::ranges::find(place.rules, dim.name, &ShardRule::dim);
      if (rule == place.rules.end() || dim.size == 1) continue;
      const int64_t ranks = place.mesh.product(rule->axes);
      if (dim.size % ranks != 0)
        return fail(Code::invalid,
                    "{}{}{}={} does not divide by the {} ranks of {}; make it a multiple, choose "
                    "another mesh, or leave it whole with the rule {}=",
                    op.at, op.at.empty() ? "" : ": ", dim.name, dim.size, ranks,
                    fmt::join(rule->axes, "+"), dim.name);
    }
  }
  return {};
}

class Runs {
 public:
  Runs(const LocalTensor& tensor, int64_t first, int64_t count, const RunVisit& visit)
      : tensor_(tensor), first_(first), end_(first + count), visit_(visit) {
    const Dims& dims = tensor.whole.dims;
    last_ = dims.size();
    while (last_ > 0 && tensor.local.dims[last_ - 1] == dims[last_ - 1]) --last_;
    for (size_t i = last_; i < dims.size(); ++i) inner_ *= dims[i].size;
  }

  // From a dimension on, at a place of those before.
  void run(size_t dim, int64_t place) {
    if (dim == last_) return take(place * inner_, inner_);
    const int64_t size = tensor_.whole.dims[dim].size;
    for (const PlaceRange& range : tensor_.places[dim]) {
      if (dim + 1 == last_) {
        take((place * size + range.start) * inner_, range.size * inner_);
        continue;
      }
      for (int64_t i = 0; i < range.size; ++i) run(dim + 1, place * size + range.start + i);
    }
  }

 private:
  void take(int64_t in_whole, int64_t count) {
    const int64_t from = std::max(at_, first_);
    const int64_t to = std::min(at_ + count, end_);
    if (from < to) visit_(from, in_whole + from - at_, to - from);
    at_ += count;
  }

  const LocalTensor& tensor_;
  int64_t first_;
  int64_t end_;
  const RunVisit& visit_;
  size_t last_ = 0;  // dimensions from here on are whole
  int64_t inner_ = 1;
  int64_t at_ = 0;  // in the part
};

}  // namespace

std::vector<Parameter> ModelPart::own(const Model& model) const {
  std::vector<Parameter> all = model.parameters;
  for (size_t i = 0; i < all.size(); ++i) all[i].type = parameters[i].local;
  return all;
}

Result<ModelPart> part_of_model(const Graph& graph, const Model& model, const ModelPlace& place) {
  ModelPart part{.graph = graph, .parameters = {}};
  if (place.alone()) {
    for (const Parameter& parameter : model.parameters)
      part.parameters.push_back(local_tensor(parameter.name, parameter.type,
                                             whole_sharding(parameter.type), place.mesh, 0));
    return part;
  }
  TRY_DO(check_dims(graph, place));
  TRY(const ShardedGraph sharded, shard(graph, place.mesh, place.rules, {.whole_data = true}));
  part.graph = graph_of_rank(sharded.graph, place.mesh, place.rank);
  const auto outputs = local_outputs(graph, sharded, place.mesh, place.rank);
  for (const Parameter& parameter : model.parameters) {
    for (const LocalTensor& tensor : local_inputs(graph, sharded, place.mesh, place.rank))
      if (tensor.name == parameter.name) part.parameters.push_back(tensor);
    const auto gradient =
        std::ranges::find(outputs, gradient_name(parameter.name), &LocalTensor::name);
    if (gradient != outputs.end() && gradient->sharding != part.parameters.back().sharding)
      return fail(Code::internal, "the gradient of {} does not lie as it does", parameter.name);
  }
  return part;
}

Result<void> check_alike(const std::vector<LocalTensor>& parameters,
                         const std::vector<LocalTensor>& others) {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].sharding != others[i].sharding)
      return fail(Code::internal, "{} lies as {} in one graph of the model, and as {} in another",
                  parameters[i].name, sharding_text(parameters[i].whole, parameters[i].sharding),
                  sharding_text(others[i].whole, others[i].sharding));
  return {};
}

void each_run(const LocalTensor& tensor, int64_t first, int64_t count, const RunVisit& visit) {
  Runs(tensor, first, count, visit).run(0, 0);
}

}  // namespace tutti
