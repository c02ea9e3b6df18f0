#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compile/interpret.h"
#include "compile/loop/loop_kernel.h"

namespace tutti {
namespace {

// Longer rows than this are not joined with others to still longer ones: threads share rows.
constexpr int64_t kLongRow = 1024;

struct LoopParameter {
  const Type* type;
  std::vector<int64_t> strides;

  int64_t stride(const Dim& dim) const {
    const auto place = type->find(dim.name);
    return place ? strides[*place] : 0;
  }
};

class Lowering {
 public:
  Lowering(const Graph& body, std::string name, LoweringOptions options)
      : body_(body), options_(options) {
    kernel_.name = std::move(name);
    for (size_t i = 0; i < body.inputs.size(); ++i)
      parameters_.push_back(
          {&body.type(body.inputs[i].value), options.strides == nullptr
                                                 ? dense_strides(body.type(body.inputs[i].value))
                                                 : options.strides->inputs[i]});
    for (size_t i = 0; i < body.outputs.size(); ++i)
      parameters_.push_back(
          {&body.type(body.outputs[i].value), options.strides == nullptr
                                                  ? dense_strides(body.type(body.outputs[i].value))
                                                  : options.strides->outputs[i]});
  }

  Result<LoopKernel> run() {
    TRY_DO(find_domain());
    if (options_.columns > domain_.size() || (options_.columns > 1 && !can_join(options_.columns)))
      return fail(Code::unsupported, "the last {} dimensions do not lie together",
                  options_.columns);
    choose_columns();
    for (const LoopParameter& parameter : parameters_)
      kernel_.parameters.push_back(access(parameter));
    kernel_.reads = body_.inputs.size();
    for (size_t i = 0; i < body_.inputs.size(); ++i) node_of_[body_.inputs[i].value] = load(i);
    for (const Node& op : body_.ops) TRY_DO(lower(op));
    for (size_t i = 0; i < body_.outputs.size(); ++i)
      store(body_.outputs[i].value, kernel_.reads + i);
    kernel_.stages = 1;
    for (const LoopNode& node : kernel_.nodes)
      if (node.op == LoopOp::sum || node.op == LoopOp::max ||
          (node.op == LoopOp::store && !node.per_row))
        kernel_.stages = std::max(kernel_.stages, node.stage + 1);
    return std::move(kernel_);
  }

 private:
  // The dimensions of the largest value, in its order.
  Result<void> find_domain() {
    node_of_.resize(body_.types.size());
    const Type* largest = nullptr;
    const auto consider = [&](ValueId value) {
      const Type& type = body_.type(value);
      if (largest == nullptr || type.dims.size() > largest->dims.size()) largest = &type;
    };
    for (const Output& output : body_.outputs) consider(output.value);
    for (const Input& input : body_.inputs) consider(input.value);
    for (const Node& op : body_.ops)
      if (op.kind != OpKind::transpose) consider(op.results[0]);
    if (largest == nullptr) return fail(Code::invalid, "a fused operation has no values");
    domain_ = largest->dims;
    for (const Type& type : body_.types)
      for (const Dim& dim : type.dims)
        if (std::ranges::count(domain_, dim) == 0)
          return fail(Code::unsupported, "{} is not within the loops over {}", type.text(),
                      dims_text(domain_));
    for (const Node& op : body_.ops)
      if (op_class(op.kind) == OpClass::reduce)
        for (const std::string& name : op.attributes.get<Names>("dims")) reduced_.insert(name);
    std::ranges::stable_partition(domain_,
                                  [&](const Dim& dim) { return !reduced_.contains(dim.name); });
    if (!reduced_.empty() && !can_join(reduced_.size()))
      return fail(Code::unsupported, "sums over dimensions that do not lie together");
    return {};
  }

  // Whether the last `count` dimensions can be one: every tensor has none of them, or all, and a
  // step of one is as long as all steps of the next.
  bool can_join(size_t count) const {
    const size_t first = domain_.size() - count;
    const auto fits = [&](const LoopParameter& parameter) {
      size_t there = 0;
      for (size_t i = first; i < domain_.size(); ++i) there += parameter.type->has(domain_[i].name);
      if (there == 0) return true;
      if (there != count) return false;
      for (size_t i = first; i + 1 < domain_.size(); ++i)
        if (parameter.stride(domain_[i]) != parameter.stride(domain_[i + 1]) * domain_[i + 1].size)
          return false;
      return true;
    };
    return std::ranges::all_of(parameters_, fits) &&
           (count == 1 || std::ranges::none_of(body_.ops, [&](const Node& op) {
              return op.kind == OpKind::iota || op.kind == OpKind::random;
            }));
  }

  void choose_columns() {
    size_t joined = std::min<size_t>(domain_.size(), 1);
    if (options_.columns != 0) {
      joined = options_.columns;
    } else if (!reduced_.empty()) {
      joined = reduced_.size();
    } else {
      int64_t size = joined == 0 ? 1 : domain_.back().size;
      while (joined < domain_.size() && size < kLongRow && can_join(joined + 1))
        size *= domain_[domain_.size() - ++joined].size;
    }
    columns_ = domain_.size() - joined;
    kernel_.rows.assign(domain_.begin(), domain_.begin() + static_cast<ptrdiff_t>(columns_));
    for (size_t i = columns_; i < domain_.size(); ++i) {
      kernel_.columns *= domain_[i].size;
      kernel_.column_name += (i == columns_ ? "" : "*") + domain_[i].name;
    }
    if (kernel_.column_name.empty()) kernel_.column_name = "one";
  }

  bool has_columns(const Type& type) const {
    for (size_t i = columns_; i < domain_.size(); ++i)
      if (type.has(domain_[i].name)) return true;
    return false;
  }

  Access access(const LoopParameter& parameter) const {
    Access out{.dtype = parameter.type->dtype, .row_strides = {}, .column_stride = 0};
    for (const Dim& dim : kernel_.rows) out.row_strides.push_back(parameter.stride(dim));
    if (!domain_.empty() && has_columns(*parameter.type))
      out.column_stride = parameter.stride(domain_.back());
    return out;
  }

  uint32_t add(LoopNode node) {
    node.per_row = node.per_row || node.op == LoopOp::sum || node.op == LoopOp::max;
    for (const uint32_t operand : node.operands) {
      const LoopNode& its = kernel_.nodes[operand];
      const bool after = its.op == LoopOp::sum || its.op == LoopOp::max;
      node.stage = std::max(node.stage, its.stage + (after ? 1 : 0));
    }
    kernel_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(kernel_.nodes.size() - 1);
  }

  uint32_t load(size_t parameter) {
    const Access& access = kernel_.parameters[parameter];
    return add({.op = LoopOp::load,
                .dtype = access.dtype,
                .index = static_cast<uint32_t>(parameter),
                .per_row = access.column_stride == 0});
  }

  void store(ValueId value, size_t parameter) {
    add({.op = LoopOp::store,
         .dtype = body_.type(value).dtype,
         .operands = {node_of_[value]},
         .index = static_cast<uint32_t>(parameter),
         .per_row = !has_columns(body_.type(value))});
  }

  Result<void> lower(const Node& op) {
    const ValueId result = op.results[0];
    const Type& type = body_.type(result);
    switch (op_class(op.kind)) {
      case OpClass::source: return lower_source(op, type);
      case OpClass::unary:
      case OpClass::binary:
      case OpClass::ternary: {
        LoopNode node{.op = LoopOp::apply, .kind = op.kind, .dtype = type.dtype, .per_row = true};
        for (const ValueId operand : op.operands) {
          node.operands.push_back(node_of_[operand]);
          node.per_row = node.per_row && kernel_.nodes[node_of_[operand]].per_row;
        }
        node_of_[result] = add(std::move(node));
        return {};
      }
      case OpClass::shape:
        if (op.kind != OpKind::broadcast && op.kind != OpKind::transpose) break;
        node_of_[result] = node_of_[op.operands[0]];
        return {};
      case OpClass::reduce: {
        if (op.kind != OpKind::reduce_sum && op.kind != OpKind::reduce_max) break;
        // All over the same dimensions, which are the columns: without any there are none.
        if (reduced_.empty() || op.attributes.get<Names>("dims").size() != reduced_.size()) break;
        node_of_[result] = add({.op = op.kind == OpKind::reduce_sum ? LoopOp::sum : LoopOp::max,
                                .dtype = type.dtype,
                                .operands = {node_of_[op.operands[0]]}});
        return {};
      }
      default: break;
    }
    return fail(Code::unsupported, "{} is not done in loops", op_info(op.kind).name);
  }

  Result<void> lower_source(const Node& op, const Type& type) {
    LoopNode node{.op = LoopOp::constant, .dtype = type.dtype, .per_row = true};
    if (op.kind == OpKind::constant) {
      node.number = op.attributes.get<double>("value");
    } else if (op.kind == OpKind::iota) {
      const std::string along = op.attributes.get<std::string>("dim");
      const auto place = std::ranges::find(domain_, along, &Dim::name) - domain_.begin();
      node.op = LoopOp::index;
      node.index = static_cast<uint32_t>(place);
      node.per_row = std::cmp_less(place, columns_);
    } else {
      if (type.dims != domain_)
        return fail(Code::unsupported, "random numbers for a part of the loops");
      node.op = LoopOp::random;
      node.index = kernel_.nodes[node_of_[op.operands[0]]].index;
      node.key =
          stream_key(op.attributes.get<int64_t>("seed"), op.attributes.get<std::string>("stream"));
      node.per_row = false;
    }
    node_of_[op.results[0]] = add(std::move(node));
    return {};
  }

  const Graph& body_;
  LoweringOptions options_;
  std::vector<LoopParameter> parameters_;  // inputs, then outputs
  LoopKernel kernel_;
  Dims domain_;
  std::set<std::string> reduced_;
  size_t columns_ = 0;  // the first of the dimensions that are columns
  std::vector<uint32_t> node_of_;
};

}  // namespace

Result<LoopKernel> lower_to_loops(const Graph& body, std::string name, LoweringOptions options) {
  return Lowering(body, std::move(name), options).run();
}

}  // namespace tutti
