#include "train/lane_fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "compile/autodiff.h"
#include "train/workers.h"

namespace tutti {
namespace {

using Body = std::shared_ptr<const Graph>;

Gradients gradients_of(const std::vector<Tensor>& all) {
  return {.loss = all[0], .of = {all.begin() + 1, all.end()}};
}

// The data first, as rounds see them, then the states.
void add_given(Graph& body, std::vector<Input> given) {
  std::ranges::stable_partition(given, [](const Input& in) { return in.role == InputRole::data; });
  for (Input& input : given) {
    input.role = InputRole::data;
    body.inputs.push_back(std::move(input));
  }
}

// A round over atoms: inputs are the sums until now if it adds to any, the atom's data, then the
// states; outputs the sums with this atom's, or the atom's.
Result<Body> atom_body(Graph differentiated, const Model& model, bool adds) {
  std::vector<Input> given = std::move(differentiated.inputs);
  differentiated.inputs.clear();
  Builder b(std::move(differentiated));
  const std::vector<Tensor> atom = take_gradients(b, model).all();
  std::vector<Tensor> made;
  for (const Tensor& value : atom)
    made.push_back(adds ? b.input(fmt::format("sum{}", made.size()), value.type()) + value : value);
  for (size_t i = 0; i < made.size(); ++i) b.output(fmt::format("made{}", i), made[i]);
  add_given(b.graph(), std::move(given));
  TRY(Graph body, b.build());
  return std::make_shared<const Graph>(std::move(body));
}

class LaneFolding {
 public:
  LaneFolding(Builder& b, const Model& model, const LaneFoldOptions& options)
      : b_(b), model_(model), options_(options) {}

  Result<std::vector<Gradients>> run(const Graph& differentiated) {
    TRY(adding_, atom_body(differentiated, model_, true));
    TRY(alone_, atom_body(differentiated, model_, false));
    const int64_t atoms = options_.own.count * options_.atoms_of_lane;
    for (const Parameter& parameter : model_.parameters)
      gradients_.push_back(
          differentiated.type(differentiated.output(gradient_name(parameter.name))->value));
    for (const Input& input : differentiated.inputs) {
      Type type = differentiated.type(input.value);
      if (input.role == InputRole::state) {
        const Parameter* parameter = model_.parameter(input.name);
        states_.push_back(options_.gathers && parameter != nullptr
                              ? gathered_weights(b_, *parameter, *options_.gathers)
                              : b_.state(input.name, type));
        continue;
      }
      type.dims.insert(type.dims.begin(), {"atom", atoms});
      data_.push_back(b_.input(input.name, std::move(type)));
    }
    std::vector<Gradients> nodes;
    for (const LaneRange node : whole_nodes(options_.own, options_.lanes)) {
      const std::vector<Tensor> sums = sum_of(node);
      if (b_.error()) return fail(*b_.error());
      nodes.push_back(gradients_of(sums));
    }
    return nodes;
  }

 private:
  std::vector<Tensor> sum_of(LaneRange node) {
    if (node.count == 1) return lane(node.first);
    const uint32_t half = std::bit_ceil(node.count) / 2;
    const LaneRange right{node.first + half, node.count - half};
    const std::vector<Tensor> left = sum_of({node.first, half});
    // A lane of one atom need not be there by itself.
    if (right.count == 1 && options_.atoms_of_lane == 1) return rounds(right.first, left);
    const std::vector<Tensor> other = sum_of(right);
    std::vector<Tensor> sums;
    for (size_t i = 0; i < std::min(left.size(), other.size()); ++i)
      sums.push_back(left[i] + other[i]);
    return sums;
  }

  std::vector<Tensor> lane(uint32_t lane) {
    if (options_.atoms_of_lane == 1) return rounds(lane, {});
    std::vector<Tensor> zeros{b_.constant(0, {DType::f32, {}})};
    for (const Type& type : gradients_) zeros.push_back(b_.constant(0, type));
    return rounds(lane, zeros);
  }

  // The atoms of a lane, added to what there is.
  std::vector<Tensor> rounds(uint32_t lane, const std::vector<Tensor>& sums) {
    const int64_t each = options_.atoms_of_lane;
    std::vector<Tensor> all = sums;
    for (const Tensor& data : data_)
      all.push_back(options_.own.count == 1
                        ? data
                        : b_.slice(data, "atom", int64_t{lane - options_.own.first} * each, each));
    all.insert(all.end(), states_.begin(), states_.end());
    const bool adds = !sums.empty();
    std::vector<Tensor> made = b_.add(OpKind::repeat, all,
                                      {{"count", each},
                                       {"carried", static_cast<int64_t>(sums.size())},
                                       {"sliced", static_cast<int64_t>(data_.size())},
                                       {"stack", "atom"},
                                       {"reversed", false}},
                                      nullptr, adds ? adding_ : alone_);
    if (adds) return made;
    for (Tensor& one : made) {  // stacked, one of them
      Dims dims = one.type().dims;
      dims.erase(dims.begin());
      one = b_.reshape(one, std::move(dims));
    }
    return made;
  }

  Builder& b_;
  const Model& model_;
  LaneFoldOptions options_;
  Body adding_;
  Body alone_;
  std::vector<Type> gradients_;
  std::vector<Tensor> data_;
  std::vector<Tensor> states_;
};

}  // namespace

std::vector<Tensor> Gradients::all() const {
  std::vector<Tensor> tensors{loss};
  tensors.insert(tensors.end(), of.begin(), of.end());
  return tensors;
}

Gradients take_gradients(Builder& b, const Model& model) {
  Gradients found{.loss = b.tensor(b.graph().output("loss")->value), .of = {}};
  for (const Parameter& parameter : model.parameters)
    found.of.push_back(b.tensor(b.graph().output(gradient_name(parameter.name))->value));
  b.graph().outputs.clear();
  return found;
}

Result<std::vector<Gradients>> fold_lanes(Builder& b, const Model& model,
                                          const Graph& differentiated,
                                          const LaneFoldOptions& options) {
  return LaneFolding(b, model, options).run(differentiated);
}

Attributes lane_attributes(const LaneFoldOptions& options) {
  return {{"axis", kDataAxis},
          {"lanes", int64_t{options.lanes}},
          {"first", int64_t{options.own.first}},
          {"count", int64_t{options.own.count}}};
}

}  // namespace tutti
