#include "compile/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace tutti {

const Type& Tensor::type() const {
  static const Type none;
  return *this ? builder_->type_of(value_) : none;
}

namespace {

// The inner of their builders, if one is in the body of the other.
Tensor combine(OpKind kind, const Tensor& a, const Tensor& b) {
  if (!a || !b) return {};
  Builder& builder = b.builder().is_within(a.builder()) ? b.builder() : a.builder();
  return builder.binary(kind, a, b);
}
Tensor with_number(OpKind kind, const Tensor& a, double b) {
  if (!a) return {};
  return a.builder().binary(kind, a, a.builder().constant(b, {a.type().dtype, {}}));
}
Tensor with_number(OpKind kind, double a, const Tensor& b) {
  if (!b) return {};
  return b.builder().binary(kind, b.builder().constant(a, b.type()), b);
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) { return combine(OpKind::add, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return combine(OpKind::sub, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return combine(OpKind::mul, a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return combine(OpKind::div, a, b); }
Tensor operator+(const Tensor& a, double b) { return with_number(OpKind::add, a, b); }
Tensor operator-(const Tensor& a, double b) { return with_number(OpKind::sub, a, b); }
Tensor operator*(const Tensor& a, double b) { return with_number(OpKind::mul, a, b); }
Tensor operator/(const Tensor& a, double b) { return with_number(OpKind::div, a, b); }
Tensor operator+(double a, const Tensor& b) { return with_number(OpKind::add, a, b); }
Tensor operator-(double a, const Tensor& b) { return with_number(OpKind::sub, a, b); }
Tensor operator*(double a, const Tensor& b) { return with_number(OpKind::mul, a, b); }
Tensor operator/(double a, const Tensor& b) { return with_number(OpKind::div, a, b); }
Tensor operator-(const Tensor& a) { return a ? a.builder().unary(OpKind::neg, a) : Tensor(); }

Tensor Builder::input(std::string name, Type type) {
  if (auto checked = check_type(type); !checked) {
    refuse(checked.error());
    return {};
  }
  return {this, graph_.add_input(std::move(name), std::move(type))};
}

Tensor Builder::state(std::string name, Type type) {
  const Tensor made = input(std::move(name), std::move(type));
  if (made) graph_.inputs.back().role = InputRole::state;
  return made;
}

void Builder::output(std::string name, const Tensor& value) {
  const ValueId id = use(value);
  if (id != kNoValue) graph_.add_output(std::move(name), id);
}

Result<Graph> Builder::build() {
  if (error_) return fail(*error_);
  return graph_;
}

void Builder::refuse(Error error) {
  if (error_) return;
  error_ = at_.empty() ? std::move(error) : error.context(at_);
}

bool Builder::is_within(const Builder& other) const {
  const Builder* outer = around_;
  while (outer != nullptr && outer != &other) outer = outer->around_;
  return outer != nullptr;
}

ValueId Builder::use(const Tensor& tensor) {
  if (!tensor) {
    if (!error_) refuse(Error(Code::invalid, "an empty tensor is used"));
    return kNoValue;
  }
  if (tensor.builder_ == this) return tensor.value_;
  for (const Taken& taken : captured_)
    if (taken.outer.builder_ == tensor.builder_ && taken.outer.value_ == tensor.value_)
      return taken.inside;
  if (!is_within(*tensor.builder_)) {
    refuse(Error(Code::invalid,
                 fmt::format("{} belongs to another graph, or to a repeated body that has ended",
                             tensor.type().text())));
    return kNoValue;
  }
  const ValueId inside = graph_.add_input(fmt::format("outer{}", captured_.size()), tensor.type());
  captured_.push_back({tensor, inside});
  return inside;
}

std::vector<Tensor> Builder::add(OpKind kind, const std::vector<Tensor>& operands,
                                 Attributes attributes, const Type* given,
                                 std::shared_ptr<const Graph> body) {
  Node op{.kind = kind, .attributes = std::move(attributes), .body = std::move(body), .at = at_};
  for (const Tensor& operand : operands) {
    const ValueId id = use(operand);
    if (id == kNoValue) return {};
    op.operands.push_back(id);
  }
  auto added = graph_.add(std::move(op), given);
  if (!added) {
    refuse(std::move(added).error());
    return {};
  }
  std::vector<Tensor> results;
  for (const ValueId value : *added) results.push_back(Tensor(this, value));
  return results;
}

Tensor Builder::constant(double value, const Type& type) {
  return one(OpKind::constant, {}, {{"value", value}}, &type);
}

Tensor Builder::iota(std::string dim, const Type& type) {
  return one(OpKind::iota, {}, {{"dim", std::move(dim)}}, &type);
}

Tensor Builder::random(const Tensor& step, int64_t seed, std::string stream, Dims dims) {
  const Type type{DType::u32, std::move(dims)};
  return one(OpKind::random, {step}, {{"seed", seed}, {"stream", std::move(stream)}}, &type);
}

Tensor Builder::unary(OpKind kind, const Tensor& x) { return one(kind, {x}, {}); }

std::optional<Dims> Builder::joined(OpKind kind, const Type& a, const Type& b) {
  Dims dims = a.dims;
  for (const Dim& dim : b.dims) {
    const auto place = a.find(dim.name);
    if (!place) {
      dims.push_back(dim);
    } else if (a.dims[*place].size != dim.size) {
      refuse(Error(Code::invalid, fmt::format("{}: {} and {} have different sizes of {}",
                                              op_info(kind).name, a.text(), b.text(), dim.name)));
      return std::nullopt;
    }
  }
  return dims;
}

Tensor Builder::binary(OpKind kind, const Tensor& a, const Tensor& b) {
  if (!a || !b) return {};
  const auto dims = joined(kind, a.type(), b.type());
  if (!dims) return {};
  return one(kind, {broadcast(a, *dims), broadcast(b, *dims)}, {});
}

Tensor Builder::select(const Tensor& condition, const Tensor& yes, const Tensor& no) {
  if (!condition || !yes || !no) return {};
  auto dims = joined(OpKind::select, yes.type(), no.type());
  if (dims) dims = joined(OpKind::select, {DType::f32, *dims}, condition.type());
  if (!dims) return {};
  return one(OpKind::select,
             {broadcast(condition, *dims), broadcast(yes, *dims), broadcast(no, *dims)}, {});
}

Tensor Builder::cast(const Tensor& x, DType dtype) {
  if (!x || x.type().dtype == dtype) return x;
  const Type type = x.type().with(dtype);
  return one(OpKind::cast, {x}, {}, &type);
}

Tensor Builder::reshape(const Tensor& x, Dims dims) {
  const Type type{x.type().dtype, std::move(dims)};
  if (type == x.type()) return x;
  return one(OpKind::reshape, {x}, {}, &type);
}

Tensor Builder::rename(const Tensor& x, const std::string& from, const std::string& to) {
  if (!x) return {};
  Dims dims = x.type().dims;
  const auto place = x.type().find(from);
  if (!place) {
    refuse(
        Error(Code::invalid, fmt::format("rename: {} has no dimension {}", x.type().text(), from)));
    return {};
  }
  dims[*place].name = to;
  return reshape(x, std::move(dims));
}

Tensor Builder::transpose(const Tensor& x, Names order) {
  if (!x) return {};
  if (x.type().names() == order) return x;
  return one(OpKind::transpose, {x}, {{"order", std::move(order)}});
}

Tensor Builder::broadcast(const Tensor& x, const Dims& dims) {
  if (!x || x.type().dims == dims) return x;
  Names order;
  for (const Dim& dim : dims)
    if (x.type().has(dim.name)) order.push_back(dim.name);
  const Tensor ordered = order.size() == x.type().dims.size() ? transpose(x, order) : x;
  if (!ordered || ordered.type().dims == dims) return ordered;
  const Type type{x.type().dtype, dims};
  return one(OpKind::broadcast, {ordered}, {}, &type);
}

Tensor Builder::slice(const Tensor& x, std::string dim, int64_t start, int64_t size) {
  return one(OpKind::slice, {x}, {{"dim", std::move(dim)}, {"start", start}, {"size", size}});
}

Tensor Builder::pad(const Tensor& x, std::string dim, int64_t low, int64_t high) {
  return one(OpKind::pad, {x}, {{"dim", std::move(dim)}, {"low", low}, {"high", high}});
}

Tensor Builder::concat(const std::vector<Tensor>& parts, std::string dim) {
  return one(OpKind::concat, parts, {{"dim", std::move(dim)}});
}

Tensor Builder::sum(const Tensor& x, Names dims) {
  return one(OpKind::reduce_sum, {x}, {{"dims", std::move(dims)}});
}

Tensor Builder::mean(const Tensor& x, const Names& dims) {
  const Tensor total = sum(x, dims);
  if (!total) return {};
  if (!is_float(x.type().dtype)) {
    refuse(Error(Code::invalid,
                 fmt::format("mean: {} is of whole numbers, and their mean may lie between; cast "
                             "it to f32 first",
                             x.type().text())));
    return {};
  }
  return total *
         (static_cast<double>(total.type().elements()) / static_cast<double>(x.type().elements()));
}

Tensor Builder::max(const Tensor& x, Names dims) {
  return one(OpKind::reduce_max, {x}, {{"dims", std::move(dims)}});
}

Tensor Builder::argmax(const Tensor& x, std::string dim) {
  return one(OpKind::argmax, {x}, {{"dim", std::move(dim)}});
}

Tensor Builder::cumulative_sum(const Tensor& x, std::string dim) {
  return one(OpKind::cumulative_sum, {x}, {{"dim", std::move(dim)}});
}

Tensor Builder::gather(const Tensor& table, const Tensor& indices, std::string dim) {
  return one(OpKind::gather, {table, indices}, {{"dim", std::move(dim)}});
}

Tensor Builder::scatter_add(const Tensor& indices, const Tensor& updates, std::string dim,
                            int64_t size) {
  return one(OpKind::scatter_add, {indices, updates}, {{"dim", std::move(dim)}, {"size", size}});
}

Tensor Builder::update(const Tensor& cache, const Tensor& rows, const Tensor& position,
                       std::string dim) {
  return one(OpKind::update, {cache, rows, position}, {{"dim", std::move(dim)}});
}

Tensor Builder::matmul(const Tensor& a, const Tensor& b, Names over) {
  return one(OpKind::matmul, {a, b}, {{"over", std::move(over)}});
}

Tensor Builder::gelu(const Tensor& x, bool by_tanh) {
  return one(OpKind::gelu, {x}, {{"tanh", by_tanh}});
}

Tensor Builder::softmax(const Tensor& x, std::string dim) {
  return one(OpKind::softmax, {x}, {{"dim", std::move(dim)}});
}

Tensor Builder::layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           std::string dim, double epsilon) {
  return one(OpKind::layer_norm, {x, scale, shift},
             {{"dim", std::move(dim)}, {"epsilon", epsilon}});
}

Tensor Builder::rms_norm(const Tensor& x, const Tensor& scale, std::string dim, double epsilon) {
  return one(OpKind::rms_norm, {x, scale}, {{"dim", std::move(dim)}, {"epsilon", epsilon}});
}

Tensor Builder::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          AttentionOptions options) {
  return attend({q, k, v}, std::move(options));
}

Tensor Builder::attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                          AttentionOptions options) {
  return attend({q, k, v, position}, std::move(options));
}

Tensor Builder::attend(const std::vector<Tensor>& operands, AttentionOptions options) {
  const Tensor& q = operands[0];
  if (options.scale == 0 && q && q.type().has(options.head))
    options.scale = 1 / std::sqrt(static_cast<double>(q.type().size_of(options.head)));
  return one(OpKind::attention, operands,
             {{"causal", options.causal},
              {"scale", options.scale},
              {"query", std::move(options.query)},
              {"key", std::move(options.key)},
              {"head", std::move(options.head)}});
}

Tensor Builder::linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                     std::string over, std::string vocab) {
  return one(OpKind::linear_cross_entropy, {x, weight, targets},
             {{"over", std::move(over)}, {"vocab", std::move(vocab)}});
}

Tensor Builder::squared_norm(const std::vector<Tensor>& parts) {
  return one(OpKind::squared_norm, parts, {});
}

std::vector<Tensor> Builder::adamw(const Tensor& weight, const Tensor& first, const Tensor& second,
                                   const Tensor& gradient, const Tensor& gradient_scale,
                                   const Tensor& rate, const Tensor& step,
                                   const AdamWOptions& options) {
  return add(OpKind::adamw, {weight, first, second, gradient, gradient_scale, rate, step},
             {{"beta1", options.beta1},
              {"beta2", options.beta2},
              {"epsilon", options.epsilon},
              {"decay", options.decay}});
}

std::vector<Tensor> Builder::repeat(const RepeatOptions& options,
                                    const std::vector<Tensor>& carried,
                                    const std::vector<Tensor>& sliced, const Body& body) {
  const std::unique_ptr<Builder> inner = open_body(options, carried);
  std::vector<Tensor> parts;
  for (const Tensor& outer : sliced) parts.push_back(inner->part(outer));
  const auto returned = body(*inner, inner->carried(), parts);
  return close_body(*inner, returned);
}

std::unique_ptr<Builder> Builder::open_body(RepeatOptions options,
                                            const std::vector<Tensor>& carried) {
  auto inner = std::make_unique<Builder>("body");
  inner->around_ = this;
  inner->at_ = at_;
  inner->rounds_ = std::move(options);
  for (const Tensor& outer : carried) {
    const Tensor inside =
        inner->input(fmt::format("carried{}", inner->carried_.size()), outer.type());
    inner->carried_.push_back({outer, inside.value_});
  }
  return inner;
}

std::vector<Tensor> Builder::carried() {
  std::vector<Tensor> inside;
  for (const Taken& taken : carried_) inside.push_back(tensor(taken.inside));
  return inside;
}

Tensor Builder::part(const Tensor& outer) {
  if (!outer) return {};
  for (const Taken& taken : parts_)
    if (taken.outer.builder_ == outer.builder_ && taken.outer.value_ == outer.value_)
      return tensor(taken.inside);
  Type type = outer.type();
  if (type.dims.empty() || type.dims[0].size != rounds_.count) {
    refuse(Error(Code::invalid, fmt::format("repeat: {} has no first dimension of size {} to be "
                                            "cut along",
                                            type.text(), rounds_.count)));
    return {};
  }
  type.dims.erase(type.dims.begin());
  const Tensor inside = input(fmt::format("part{}", parts_.size()), std::move(type));
  parts_.push_back({outer, inside.value_});
  return inside;
}

std::vector<Tensor> Builder::close_body(Builder& inner, const std::vector<Tensor>& returned) {
  for (size_t i = 0; i < returned.size(); ++i)
    inner.output(i < inner.carried_.size() ? fmt::format("carried{}", i)
                                           : fmt::format("stacked{}", i - inner.carried_.size()),
                 returned[i]);
  // Parts and captures were asked for in any order; a repeat takes them in this one.
  std::vector<Tensor> operands;
  std::vector<Input> ordered;
  for (const auto* group : {&inner.carried_, &inner.parts_, &inner.captured_})
    for (const Taken& taken : *group) {
      operands.push_back(taken.outer);
      for (const Input& each : inner.graph_.inputs)
        if (each.value == taken.inside) ordered.push_back(each);
    }
  inner.graph_.inputs = std::move(ordered);
  auto built = inner.build();
  if (!built) {
    if (!error_) error_ = std::move(built).error();  // it names its line already
    return {};
  }
  return add(OpKind::repeat, operands,
             {{"count", inner.rounds_.count},
              {"carried", static_cast<int64_t>(inner.carried_.size())},
              {"sliced", static_cast<int64_t>(inner.parts_.size())},
              {"stack", inner.rounds_.stack},
              {"reversed", inner.rounds_.reversed}},
             nullptr, std::make_shared<const Graph>(*std::move(built)));
}

}  // namespace tutti
