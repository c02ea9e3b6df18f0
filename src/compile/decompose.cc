#include "compile/decompose.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/assert.h"
#include "compile/builder.h"
#include "compile/chunk.h"
#include "compile/gradient_part.h"

namespace tutti {
namespace {

using Tensors = std::vector<Tensor>;

Tensor exp(const Tensor& x) { return x.builder().unary(OpKind::exp, x); }
Tensor log(const Tensor& x) { return x.builder().unary(OpKind::log, x); }
Tensor tanh(const Tensor& x) { return x.builder().unary(OpKind::tanh, x); }
Tensor erf(const Tensor& x) { return x.builder().unary(OpKind::erf, x); }
Tensor sqrt(const Tensor& x) { return x.builder().unary(OpKind::sqrt, x); }
Tensor rsqrt(const Tensor& x) { return x.builder().unary(OpKind::rsqrt, x); }

const double kRootOfTwoOverPi = std::sqrt(2 / std::numbers::pi);
constexpr double kCubic = 0.044715;

Tensor gelu(const Tensor& x, bool by_tanh) {
  if (!by_tanh) return 0.5 * x * (1 + erf(x * (std::numbers::sqrt2 / 2)));
  return 0.5 * x * (1 + tanh(kRootOfTwoOverPi * (x + kCubic * x * x * x)));
}

Tensor gelu_grad(const Tensor& x, const Tensor& dy, bool by_tanh) {
  if (!by_tanh) {
    const Tensor density = exp(-0.5 * x * x) * (1 / std::sqrt(2 * std::numbers::pi));
    return dy * (0.5 * (1 + erf(x * (std::numbers::sqrt2 / 2))) + x * density);
  }
  const Tensor t = tanh(kRootOfTwoOverPi * (x + kCubic * x * x * x));
  const Tensor inner = kRootOfTwoOverPi * (1 + 3 * kCubic * x * x);
  return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner);
}

Names names_without(const Type& type, const Names& left_out) {
  return type.without(left_out).names();
}

struct Decomposition {
  Builder& b;
  const Tensors& in;
  const Attributes& attributes;

  std::string name(std::string_view key) const { return attributes.get<std::string>(key); }
  double number(std::string_view key) const { return attributes.get<double>(key); }

  Tensors softmax() const {
    const Names dim = {name("dim")};
    const Tensor e = exp(in[0] - b.max(in[0], dim));
    return {e / b.sum(e, dim)};
  }

  Tensors layer_norm() const {
    const Names dim = {name("dim")};
    const Tensor& x = in[0];
    const Tensor mean = b.mean(x, dim);
    const Tensor centred = x - mean;
    const Tensor rstd = rsqrt(b.mean(centred * centred, dim) + number("epsilon"));
    return {centred * rstd * in[1] + in[2], mean, rstd};
  }

  Tensors layer_norm_grad() const {
    const Names dim = {name("dim")};
    const Names rows = names_without(in[1].type(), dim);
    const Tensor& dy = in[0];
    const Tensor& rstd = in[4];
    const Tensor normal = (in[1] - in[3]) * rstd;
    const Tensor g = dy * in[2];
    const Tensor dx = rstd * (g - b.mean(g, dim) - normal * b.mean(g * normal, dim));
    return {b.transpose(dx, in[1].type().names()), b.sum(dy * normal, rows), b.sum(dy, rows)};
  }

  Tensors rms_norm() const {
    const Names dim = {name("dim")};
    const Tensor root = rsqrt(b.mean(in[0] * in[0], dim) + number("epsilon"));
    return {in[0] * root * in[1], root};
  }

  Tensors rms_norm_grad() const {
    const Names dim = {name("dim")};
    const Tensor& x = in[1];
    const Tensor& root = in[3];
    const Tensor g = in[0] * in[2];
    const Tensor dx = g * root - x * (root * root * root * b.mean(g * x, dim));
    return {dx, b.sum(in[0] * x * root, names_without(x.type(), dim))};
  }

  // [query's dimensions without the head, key]; keys that a query may not see at minus infinity.
  Tensor scores(const Tensor& q, const Tensor& k, const Tensor& position = {}) const {
    const Tensor s = b.matmul(q, k, {name("head")}) * number("scale");
    if (!attributes.get<bool>("causal")) return s;
    const Dim query{name("query"), q.type().size_of(name("query"))};
    const Dim key{name("key"), k.type().size_of(name("key"))};
    const Tensor place = b.iota(query.name, {DType::i64, {query}});
    const Tensor last =
        position ? place + position : place + static_cast<double>(key.size - query.size);
    const Tensor seen = b.binary(OpKind::less_equal, b.iota(key.name, {DType::i64, {key}}), last);
    const Tensor never = b.constant(-std::numeric_limits<double>::infinity(), s.type());
    return b.select(seen, s, never);
  }

  Tensors attention() const {
    const Names key = {name("key")};
    const Tensor s = scores(in[0], in[1], in.size() > 3 ? in[3] : Tensor());
    const Tensor highest = b.max(s, key);
    const Tensor e = exp(s - highest);
    const Tensor total = b.sum(e, key);
    const Tensor out = b.matmul(e / total, in[2], key);
    Names order = names_without(in[0].type(), {name("head"), name("query")});
    order.push_back(name("query"));
    return {b.transpose(out, in[0].type().names()), b.transpose(highest + log(total), order)};
  }

  Tensors attention_grad() const {
    const Tensor& dout = in[0];
    const Tensor& q = in[1];
    const Tensor& k = in[2];
    const Tensor& v = in[3];
    const Names head = {name("head")};
    const Names key = {name("key")};
    const Names queries = names_without(q.type(), k.type().names());
    const Tensor p = exp(scores(q, k) - in[5]);
    const Tensor dp = b.matmul(dout, v, head);
    const Tensor ds = p * (dp - b.sum(dout * in[4], head)) * number("scale");
    const auto like = [&](const Tensor& x, const Tensor& shape) {
      return b.transpose(x, shape.type().names());
    };
    return {like(b.matmul(ds, k, key), q), like(b.matmul(ds, q, queries), k),
            like(b.matmul(p, dout, queries), v)};
  }

  Tensors linear_cross_entropy(bool with_gradient) const {
    const Tensor& x = in[0];
    const Tensor& w = in[1];
    const Names vocab = {name("vocab")};
    const Tensor logits = b.matmul(x, w, {name("over")});
    const Tensor highest = b.max(logits, vocab);
    const Tensor e = exp(logits - highest);
    const Tensor total = b.sum(e, vocab);
    const Dim words{vocab[0], w.type().size_of(vocab[0])};
    const Tensor targets = b.cast(in[2], DType::i64);
    const Tensor hit = b.binary(OpKind::equal, targets, b.iota(words.name, {DType::i64, {words}}));
    const Tensor picked = b.sum(logits * b.cast(hit, DType::f32), vocab);
    const Tensor counts = b.binary(OpKind::less_equal, b.constant(0, targets.type()), targets);
    const Tensor mask = b.cast(counts, DType::f32);
    const Tensor loss = (highest + log(total) - picked) * mask;
    if (!with_gradient) return {loss};
    const Tensor dlogits = (e / total - b.cast(hit, DType::f32)) * (in[3] * mask);
    return {loss, b.matmul(dlogits, w, vocab),
            b.matmul(dlogits, x, names_without(x.type(), {name("over")}))};
  }

  Tensors squared_norm() const {
    Tensor total = b.constant(0, {DType::f32, {}});
    for (const Tensor& x : in) {
      const Tensor wide = b.cast(x, DType::f32);
      total = total + b.sum(wide * wide, x.type().names());
    }
    return {total};
  }

  Tensors square_chunks() const {
    const int64_t elements = in[0].type().elements();
    const int64_t chunks = chunks_of(elements);
    const Tensor flat = b.reshape(in[0], {{"element", elements}});
    const Tensor whole = b.pad(flat, "element", 0, chunks * kChunkElements - elements);
    const Tensor parted = b.reshape(whole, {{"chunk", chunks}, {"element", kChunkElements}});
    return {b.sum(parted * parted, {"element"})};
  }

  Tensors adamw() const {
    const double beta1 = number("beta1");
    const double beta2 = number("beta2");
    const Tensor& rate = in[5];
    const Tensor steps = b.cast(in[6], DType::f32);
    const auto correction = [&](double beta) {
      return 1 - b.binary(OpKind::pow, b.constant(beta, steps.type()), steps);
    };
    const Tensor gradient = in[3] * in[4];
    const Tensor first = in[1] * beta1 + gradient * (1 - beta1);
    const Tensor second = in[2] * beta2 + gradient * gradient * (1 - beta2);
    const Tensor root = sqrt(second) / sqrt(correction(beta2)) + number("epsilon");
    const Tensor kept = in[0] * (1 - rate * number("decay"));
    return {kept - rate / correction(beta1) * (first / root), first, second};
  }

  Tensors run(OpKind kind) const {
    const bool by_tanh = attributes.get<bool>("tanh");
    switch (kind) {
      case OpKind::matmul: return {b.sum(in[0] * in[1], attributes.get<Names>("over"))};
      case OpKind::gelu: return {gelu(in[0], by_tanh)};
      case OpKind::gelu_grad: return {gelu_grad(in[0], in[1], by_tanh)};
      case OpKind::softmax: return softmax();
      case OpKind::layer_norm: return layer_norm();
      case OpKind::layer_norm_grad: return in_part(kind, attributes, layer_norm_grad());
      case OpKind::rms_norm: return rms_norm();
      case OpKind::rms_norm_grad: return in_part(kind, attributes, rms_norm_grad());
      case OpKind::attention: return attention();
      case OpKind::attention_grad: return attention_grad();
      case OpKind::linear_cross_entropy: return linear_cross_entropy(false);
      case OpKind::linear_cross_entropy_grad:
        return in_part(kind, attributes, linear_cross_entropy(true));
      case OpKind::squared_norm: return squared_norm();
      case OpKind::square_chunks: return square_chunks();
      case OpKind::join_chunks: return {b.sum(in[0], {"chunk"})};
      case OpKind::adamw: return adamw();
      default: break;
    }
    TUTTI_ASSERT(false, "only larger operations are decomposed");
    return {};
  }
};

}  // namespace

Graph decompose(OpKind kind, std::span<const Type> operands, const Attributes& attributes) {
  Builder builder(std::string(op_info(kind).name));
  Tensors inputs;
  for (const Type& type : operands)
    inputs.push_back(builder.input(fmt::format("in{}", inputs.size()), type));
  const Tensors results = Decomposition{builder, inputs, attributes}.run(kind);
  for (size_t i = 0; i < results.size(); ++i) builder.output(fmt::format("out{}", i), results[i]);
  auto graph = builder.build();
  TUTTI_ASSERT(graph.has_value(), "the operation was inferred, so its meaning can be built");
  return *std::move(graph);
}

}  // namespace tutti
