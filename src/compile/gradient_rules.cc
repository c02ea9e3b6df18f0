#include "compile/gradient_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "compile/gradient_part.h"

namespace tutti {
namespace {

using Tensors = std::vector<Tensor>;

Names names_only_in(const Type& type, const Type& other) {
  Names names;
  for (const Dim& dim : type.dims)
    if (!other.has(dim.name)) names.push_back(dim.name);
  return names;
}

struct Rule {
  Builder& b;
  const Node& op;
  const Tensors& in;
  const Tensors& out;
  const Tensor& dy;  // of the first result
  const std::vector<bool>& wanted;

  std::string name(std::string_view key) const { return op.attributes.get<std::string>(key); }
  Tensor like(const Tensor& x, const Tensor& shape) const {
    return b.transpose(x, shape.type().names());
  }
  // As many as the condition says yes to, the others zero.
  Tensor where(const Tensor& condition, const Tensor& x) const {
    return b.select(condition, x, b.constant(0, x.type()));
  }

  Tensors unary() const {
    const Tensor& x = in[0];
    const Tensor& y = out[0];
    const auto of = [&](OpKind kind, const Tensor& value) { return b.unary(kind, value); };
    switch (op.kind) {
      case OpKind::neg: return {-dy};
      case OpKind::abs: return {dy * of(OpKind::sign, x)};
      case OpKind::exp: return {dy * y};
      case OpKind::log: return {dy / x};
      case OpKind::sqrt: return {dy * 0.5 / y};
      case OpKind::rsqrt: return {dy * -0.5 * y * y * y};
      case OpKind::tanh: return {dy * (1 - y * y)};
      case OpKind::erf: return {dy * (2 / std::sqrt(std::numbers::pi)) * of(OpKind::exp, -(x * x))};
      case OpKind::sin: return {dy * of(OpKind::cos, x)};
      case OpKind::cos: return {-(dy * of(OpKind::sin, x))};
      case OpKind::cast: return {is_float(x.type().dtype) ? b.cast(dy, x.type().dtype) : Tensor()};
      default: return {Tensor()};  // sign, floor and truths do not change with their operand
    }
  }

  Tensors binary() const {
    const Tensor& a = in[0];
    const Tensor& c = in[1];
    switch (op.kind) {
      case OpKind::add: return {dy, dy};
      case OpKind::sub: return {dy, -dy};
      case OpKind::mul: return {dy * c, dy * a};
      case OpKind::div: return {dy / c, -(dy * out[0] / c)};
      case OpKind::pow:
        return {wanted[0] ? dy * c * b.binary(OpKind::pow, a, c - 1) : Tensor(),
                wanted[1] ? dy * out[0] * b.unary(OpKind::log, a) : Tensor()};
      case OpKind::maximum:
      case OpKind::minimum: {
        // Equal operands share it.
        const auto share = [&](const Tensor& mine, const Tensor& other) {
          const Tensor half = where(b.binary(OpKind::equal, mine, other), dy * 0.5);
          const Tensor less = op.kind == OpKind::maximum ? b.binary(OpKind::less, other, mine)
                                                         : b.binary(OpKind::less, mine, other);
          return half + where(less, dy);
        };
        return {share(a, c), share(c, a)};
      }
      default: return {Tensor(), Tensor()};
    }
  }

  Tensors shape() const {
    const Type& from = in[0].type();
    switch (op.kind) {
      case OpKind::reshape: return {b.reshape(dy, from.dims)};
      case OpKind::transpose: return {b.transpose(dy, from.names())};
      case OpKind::broadcast: return {b.sum(dy, names_only_in(dy.type(), from))};
      case OpKind::slice: {
        const int64_t start = op.attributes.get<int64_t>("start");
        const int64_t size = op.attributes.get<int64_t>("size");
        return {b.pad(dy, name("dim"), start, from.size_of(name("dim")) - start - size)};
      }
      case OpKind::pad:
        return {
            b.slice(dy, name("dim"), op.attributes.get<int64_t>("low"), from.size_of(name("dim")))};
      default: break;
    }
    Tensors parts;
    int64_t start = 0;
    for (const Tensor& part : in) {
      const int64_t size = part.type().size_of(name("dim"));
      parts.push_back(b.slice(dy, name("dim"), start, size));
      start += size;
    }
    return parts;
  }

  Tensors reduce() const {
    const Tensor& x = in[0];
    if (op.kind == OpKind::reduce_sum) return {b.broadcast(dy, x.type().dims)};
    if (op.kind == OpKind::cumulative_sum)
      return {dy - b.cumulative_sum(dy, name("dim")) + b.sum(dy, {name("dim")})};
    if (op.kind == OpKind::argmax) return {Tensor()};
    // The greatest share it.
    const Tensor hit = b.binary(OpKind::equal, x, b.broadcast(out[0], x.type().dims));
    const Tensor ones = b.cast(hit, x.type().dtype);
    return {ones * (dy / b.sum(ones, op.attributes.get<Names>("dims")))};
  }

  Tensors gather() const {
    const int64_t size = in[0].type().size_of(name("dim"));
    return {like(b.scatter_add(in[1], dy, name("dim"), size), in[0]), Tensor()};
  }

  // In whichever order of operands gives the dimensions in the order that is wanted.
  Tensor product(const Tensor& x, const Tensor& y, const Names& over, const Tensor& shape) const {
    Dims there = y.type().without(over).dims;
    for (const Dim& dim : x.type().without(over).dims)
      if (!y.type().has(dim.name)) there.push_back(dim);
    if (there == shape.type().dims) return b.matmul(y, x, over);
    return like(b.matmul(x, y, over), shape);
  }

  Tensors matmul() const {
    const Names only_first = names_only_in(in[0].type(), in[1].type());
    const Names only_second = names_only_in(in[1].type(), in[0].type());
    return {wanted[0] ? product(dy, in[1], only_second, in[0]) : Tensor(),
            wanted[1] ? product(in[0], dy, only_first, in[1]) : Tensor()};
  }

  // The gradient of the input, and those of the weights, each if it is wanted, by an operation of
  // its own: all results in their order, empty where nobody asked.
  Tensors parts(OpKind kind, const Tensors& operands, Attributes attributes, size_t results) const {
    const size_t of_input = *results_of_input(kind);
    Tensors all(results);
    const auto make = [&](const char* part, size_t first) {
      attributes.set(kPart, std::string(part));
      const Tensors made = b.add(kind, operands, attributes);
      for (size_t i = 0; i < made.size(); ++i) all[first + i] = made[i];
    };
    if (wanted[0]) make(kInputPart, 0);
    if (wanted[1] || (wanted.size() > 2 && wanted[2])) make(kWeightsPart, of_input);
    return all;
  }

  Tensors large() const {
    switch (op.kind) {
      case OpKind::matmul: return matmul();
      case OpKind::gelu: return b.add(OpKind::gelu_grad, {in[0], dy}, op.attributes);
      case OpKind::softmax: return {out[0] * (dy - b.sum(dy * out[0], {name("dim")}))};
      case OpKind::layer_norm:
        return parts(OpKind::layer_norm_grad, {dy, in[0], in[1], out[1], out[2]},
                     {{"dim", name("dim")}}, 3);
      case OpKind::rms_norm:
        return parts(OpKind::rms_norm_grad, {dy, in[0], in[1], out[1]}, {{"dim", name("dim")}}, 2);
      case OpKind::attention:
        return b.add(OpKind::attention_grad, {dy, in[0], in[1], in[2], out[0], out[1]},
                     op.attributes);
      case OpKind::linear_cross_entropy: {
        const Tensors made =
            parts(OpKind::linear_cross_entropy_grad, {in[0], in[1], in[2], dy}, op.attributes, 3);
        return {made[1], made[2], Tensor()};
      }
      case OpKind::squared_norm: {
        Tensors parts;
        for (const Tensor& x : in) parts.push_back(x * (dy * 2));
        return parts;
      }
      default: return {};
    }
  }

  Tensors run() const {
    switch (op_class(op.kind)) {
      case OpClass::source: return Tensors(in.size());
      case OpClass::unary: return unary();
      case OpClass::binary: return binary();
      case OpClass::ternary:
        return {Tensor(), where(in[0], dy), where(b.unary(OpKind::logical_not, in[0]), dy)};
      case OpClass::shape: return shape();
      case OpClass::reduce: return reduce();
      case OpClass::index:
        return op.kind == OpKind::gather ? gather()
                                         : Tensors{Tensor(), b.gather(dy, in[0], name("dim"))};
      case OpClass::large: return large();
      case OpClass::control:
      case OpClass::collective: break;
    }
    return {};
  }
};

}  // namespace

Result<std::vector<Tensor>> operand_gradients(const GradientCall& call) {
  for (size_t i = 1; i < call.adjoints.size(); ++i)
    if (call.adjoints[i])
      return fail(Code::unsupported, "{} has no gradient by result {}", op_info(call.op.kind).name,
                  i);
  const bool caches = call.op.kind == OpKind::update ||
                      (call.op.kind == OpKind::attention && call.operands.size() > 3);
  if (caches)
    return fail(Code::unsupported,
                "{} with a cache has no gradient; build the model for training, without positions",
                op_info(call.op.kind).name);
  Tensors made = Rule{.b = call.builder,
                      .op = call.op,
                      .in = call.operands,
                      .out = call.results,
                      .dy = call.adjoints[0],
                      .wanted = call.wanted}
                     .run();
  if (call.builder.error()) return fail(*call.builder.error());
  if (made.size() != call.operands.size())
    return fail(Code::unsupported, "{} has no gradient", op_info(call.op.kind).name);
  for (size_t i = 0; i < made.size(); ++i)
    if (!call.wanted[i]) made[i] = Tensor();
  return made;
}

}  // namespace tutti
