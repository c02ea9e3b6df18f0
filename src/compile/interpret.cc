#include "compile/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/hash.h"
#include "base/philox.h"
#include "compile/decompose.h"

namespace tutti {
namespace {

using Values = std::vector<double>;

// For each dimension of `shape`, how far apart its elements are in `type`: 0 where it has it not.
std::vector<int64_t> strides_in(const Type& shape, const Type& type) {
  const auto own = dense_strides(type);
  std::vector<int64_t> strides;
  for (const Dim& dim : shape.dims) {
    const auto place = type.find(dim.name);
    strides.push_back(place ? own[*place] : 0);
  }
  return strides;
}

// Walks over a box in order, keeping the offset into another one.
class Walk {
 public:
  Walk(const Dims& dims, std::vector<int64_t> strides, int64_t start = 0)
      : dims_(dims), strides_(std::move(strides)), index_(dims.size()), offset_(start) {}

  int64_t offset() const { return offset_; }
  int64_t index(size_t dim) const { return index_[dim]; }
  void next() {
    for (size_t i = dims_.size(); i-- > 0;) {
      offset_ += strides_[i];
      if (++index_[i] < dims_[i].size) return;
      offset_ -= strides_[i] * dims_[i].size;
      index_[i] = 0;
    }
  }

 private:
  const Dims& dims_;
  std::vector<int64_t> strides_;
  std::vector<int64_t> index_;
  int64_t offset_;
};

double apply(OpKind kind, double x) {
  switch (kind) {
    case OpKind::neg: return -x;
    case OpKind::abs: return std::abs(x);
    case OpKind::sign: return static_cast<double>(x > 0) - static_cast<double>(x < 0);
    case OpKind::exp: return std::exp(x);
    case OpKind::log: return std::log(x);
    case OpKind::sqrt: return std::sqrt(x);
    case OpKind::rsqrt: return 1 / std::sqrt(x);
    case OpKind::tanh: return std::tanh(x);
    case OpKind::erf: return std::erf(x);
    case OpKind::sin: return std::sin(x);
    case OpKind::cos: return std::cos(x);
    case OpKind::floor: return std::floor(x);
    case OpKind::logical_not: return x == 0 ? 1 : 0;
    case OpKind::is_finite: return std::isfinite(x) ? 1 : 0;
    default: return x;  // cast: rounding is all
  }
}

double apply(OpKind kind, double a, double b) {
  switch (kind) {
    case OpKind::add: return a + b;
    case OpKind::sub: return a - b;
    case OpKind::mul: return a * b;
    case OpKind::div: return a / b;
    case OpKind::pow: return std::pow(a, b);
    case OpKind::maximum: return std::isnan(a) || a > b ? a : b;
    case OpKind::minimum: return std::isnan(a) || a < b ? a : b;
    case OpKind::logical_and: return a != 0 && b != 0 ? 1 : 0;
    case OpKind::logical_or: return a != 0 || b != 0 ? 1 : 0;
    case OpKind::shift_right:
      return b < 32 ? static_cast<double>(static_cast<uint32_t>(a) >> static_cast<uint32_t>(b)) : 0;
    case OpKind::equal: return a == b ? 1 : 0;
    case OpKind::less: return a < b ? 1 : 0;
    case OpKind::less_equal: return a <= b ? 1 : 0;
    default: return 0;
  }
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, Precision precision) : graph_(graph), precision_(precision) {}

  Result<std::vector<Array>> run(std::vector<Array> inputs) {
    values_.resize(graph_.types.size());
    if (inputs.size() != graph_.inputs.size())
      return fail(Code::invalid, "graph {} takes {} inputs, not {}", graph_.name,
                  graph_.inputs.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Input& input = graph_.inputs[i];
      if (inputs[i].type != graph_.type(input.value) ||
          std::cmp_not_equal(inputs[i].values.size(), inputs[i].type.elements()))
        return fail(Code::invalid, "input {} is {}, not {} with {} values", input.name,
                    graph_.type(input.value).text(), inputs[i].type.text(),
                    inputs[i].values.size());
      values_[input.value] = std::move(inputs[i].values);
    }
    for (const Node& op : graph_.ops) {
      auto done = step(op);
      if (!done)
        return fail(done.error().context(
            fmt::format("{}{}{}", op_info(op.kind).name, op.at.empty() ? "" : " of ", op.at)));
    }
    std::vector<Array> outputs;
    for (const Output& output : graph_.outputs)
      outputs.push_back({graph_.type(output.value), values_[output.value]});
    return outputs;
  }

 private:
  const Type& type(ValueId value) const { return graph_.type(value); }

  void keep(ValueId value, Values made) {
    if (precision_ == Precision::typed || !is_float(type(value).dtype))
      for (double& x : made) x = rounded(x, type(value).dtype);
    values_[value] = std::move(made);
  }

  Result<void> step(const Node& op) {
    const ValueId out = op.results.empty() ? kNoValue : op.results[0];
    const auto in = [&](size_t i) -> const Values& { return values_[op.operands[i]]; };
    switch (op_class(op.kind)) {
      case OpClass::source: keep(out, source(op)); return {};
      case OpClass::unary: {
        Values made = in(0);
        for (double& x : made) x = apply(op.kind, x);
        keep(out, std::move(made));
        return {};
      }
      case OpClass::binary: {
        Values made = in(0);
        for (size_t i = 0; i < made.size(); ++i) made[i] = apply(op.kind, made[i], in(1)[i]);
        keep(out, std::move(made));
        return {};
      }
      case OpClass::ternary: {
        Values made = in(0);
        for (size_t i = 0; i < made.size(); ++i) made[i] = made[i] != 0 ? in(1)[i] : in(2)[i];
        keep(out, std::move(made));
        return {};
      }
      case OpClass::shape: keep(out, reshaped(op)); return {};
      case OpClass::reduce: keep(out, reduced(op)); return {};
      case OpClass::index: return op.kind == OpKind::update ? update(op) : indexed(op);
      case OpClass::control:
        if (op.kind == OpKind::repeat) return repeat(op);
        if (op.body != nullptr) return call(op, *op.body);
        return fail(Code::unsupported, "{} takes other workers; nobody computes it alone",
                    op_info(op.kind).name);
      case OpClass::large: {
        TRY_DO(check_targets(op));
        std::vector<Type> operands;
        for (const ValueId operand : op.operands) operands.push_back(type(operand));
        return call(op, decompose(op.kind, operands, op.attributes));
      }
      case OpClass::collective:
        return fail(Code::unsupported, "needs the other ranks; run all with interpret_ranks()");
    }
    return fail(Code::internal, "no such operation");
  }

  Values source(const Node& op) const {
    const Type& shape = type(op.results[0]);
    Values made(static_cast<size_t>(shape.elements()));
    if (op.kind == OpKind::constant) {
      std::ranges::fill(made, op.attributes.get<double>("value"));
    } else if (op.kind == OpKind::iota) {
      const size_t dim = *shape.find(op.attributes.get<std::string>("dim"));
      Walk walk(shape.dims, dense_strides(shape));
      for (double& x : made) {
        x = static_cast<double>(walk.index(dim));
        walk.next();
      }
    } else {
      const uint64_t key =
          stream_key(op.attributes.get<int64_t>("seed"), op.attributes.get<std::string>("stream"));
      const auto at = static_cast<uint64_t>(values_[op.operands[0]][0]);
      for (size_t i = 0; i < made.size(); ++i) made[i] = random_bits(key, at, i);
    }
    return made;
  }

  Values reshaped(const Node& op) const {
    const Values& x = values_[op.operands[0]];
    const Type& from = type(op.operands[0]);
    const Type& to = type(op.results[0]);
    if (op.kind == OpKind::reshape) return x;
    Values made(static_cast<size_t>(to.elements()));
    const std::string dim = op.attributes.get<std::string>("dim");
    if (op.kind == OpKind::pad || op.kind == OpKind::concat) {
      const int64_t apart = dense_strides(to)[*to.find(dim)];
      int64_t start = op.attributes.get<int64_t>("low") * apart;
      for (const ValueId part : op.operands) {
        Walk walk(type(part).dims, strides_in(type(part), to), start);
        for (const double value : values_[part]) {
          made[walk.offset()] = value;
          walk.next();
        }
        start += type(part).size_of(dim) * apart;
      }
      return made;
    }
    const int64_t start = op.kind == OpKind::slice ? op.attributes.get<int64_t>("start") *
                                                         dense_strides(from)[*from.find(dim)]
                                                   : 0;
    Walk walk(to.dims, strides_in(to, from), start);
    for (double& value : made) {
      value = x[walk.offset()];
      walk.next();
    }
    return made;
  }

  Values reduced(const Node& op) const {
    const Values& x = values_[op.operands[0]];
    const Type& from = type(op.operands[0]);
    const Type& to = type(op.results[0]);
    if (op.kind == OpKind::cumulative_sum) {
      const size_t dim = *from.find(op.attributes.get<std::string>("dim"));
      const int64_t apart = dense_strides(from)[dim];
      Values made = x;
      Walk walk(from.dims, dense_strides(from));
      for (size_t i = 0; i < made.size(); ++i, walk.next())
        if (walk.index(dim) != 0) made[i] += made[i - static_cast<size_t>(apart)];
      return made;
    }
    const bool sums = op.kind == OpKind::reduce_sum;
    Values made(static_cast<size_t>(to.elements()),
                sums ? 0 : -std::numeric_limits<double>::infinity());
    Values place(op.kind == OpKind::argmax ? made.size() : 0, -1);
    const std::string dim = op.attributes.get<std::string>("dim");
    Walk walk(from.dims, strides_in(from, to));
    for (const double value : x) {
      double& total = made[walk.offset()];
      if (sums) {
        total += value;
      } else if (std::isnan(value) || value > total ||
                 (!place.empty() && place[walk.offset()] < 0)) {
        total = value;
        if (!place.empty()) place[walk.offset()] = static_cast<double>(walk.index(*from.find(dim)));
      }
      walk.next();
    }
    return place.empty() ? made : place;
  }

  Result<void> indexed(const Node& op) {
    const bool gathers = op.kind == OpKind::gather;
    const std::string dim = op.attributes.get<std::string>("dim");
    const ValueId indices = op.operands[gathers ? 1 : 0];
    const ValueId rows = gathers ? op.operands[0] : op.results[0];
    const ValueId list = gathers ? op.results[0] : op.operands[1];
    const int64_t size = type(rows).size_of(dim);
    const int64_t apart = dense_strides(type(rows))[*type(rows).find(dim)];
    Values made(static_cast<size_t>(type(op.results[0]).elements()));
    Walk index(type(list).dims, strides_in(type(list), type(indices)));
    Walk row(type(list).dims, strides_in(type(list), type(rows)));
    for (int64_t i = 0; i < type(list).elements(); ++i) {
      const auto at = static_cast<int64_t>(values_[indices][index.offset()]);
      if (at < 0 || at >= size)
        return fail(Code::invalid, "index {} is outside of {}={}", at, dim, size);
      const int64_t place = row.offset() + at * apart;
      if (gathers)
        made[i] = values_[rows][place];
      else
        made[place] += values_[list][i];
      index.next();
      row.next();
    }
    keep(op.results[0], std::move(made));
    return {};
  }

  Result<void> update(const Node& op) {
    const std::string dim = op.attributes.get<std::string>("dim");
    const Type& cache = type(op.operands[0]);
    const Type& rows = type(op.operands[1]);
    const size_t along = *cache.find(dim);
    const int64_t size = cache.dims[along].size;
    const int64_t apart = dense_strides(cache)[along];
    Values made = values_[op.operands[0]];
    Walk to(rows.dims, strides_in(rows, cache));
    Walk position(rows.dims, strides_in(rows, type(op.operands[2])));
    for (const double value : values_[op.operands[1]]) {
      const auto at = static_cast<int64_t>(values_[op.operands[2]][position.offset()]);
      if (at < 0 || at > size)
        return fail(Code::invalid, "position {} is outside of {}={}", at, dim, size);
      if (at + to.index(along) < size) made[to.offset() + at * apart] = value;
      to.next();
      position.next();
    }
    keep(op.results[0], std::move(made));
    return {};
  }

  // Nothing in the decomposition would notice them: they hit no word.
  Result<void> check_targets(const Node& op) const {
    if (op.kind != OpKind::linear_cross_entropy && op.kind != OpKind::linear_cross_entropy_grad)
      return {};
    const int64_t vocab = type(op.operands[1]).size_of(op.attributes.get<std::string>("vocab"));
    const Values& targets = values_[op.operands[2]];
    for (size_t i = 0; i < targets.size(); ++i)
      if (targets[i] >= static_cast<double>(vocab))
        return fail(Code::invalid, "target {} is {}, which is not below the vocabulary of {}", i,
                    targets[i], vocab);
    return {};
  }

  Result<void> call(const Node& op, const Graph& body) {
    std::vector<Array> operands;
    for (size_t i = 0; i < op.operands.size(); ++i)
      operands.push_back({body.type(body.inputs[i].value), values_[op.operands[i]]});
    TRY(auto results, interpret(body, std::move(operands), precision_));
    for (size_t i = 0; i < results.size(); ++i) keep(op.results[i], std::move(results[i].values));
    return {};
  }

  Result<void> repeat(const Node& op) {
    const RepeatShape shape = repeat_shape(op);
    const Graph& body = *op.body;
    std::vector<Values> carried;
    for (size_t i = 0; i < shape.carried; ++i) carried.push_back(values_[op.operands[i]]);
    std::vector<Values> stacked(op.results.size() - shape.carried);
    for (size_t i = 0; i < stacked.size(); ++i)
      stacked[i].resize(static_cast<size_t>(type(op.results[shape.carried + i]).elements()));
    for (size_t round = 0; round < shape.count; ++round) {
      const size_t part = shape.reversed ? shape.count - 1 - round : round;
      std::vector<Array> operands;
      for (size_t i = 0; i < op.operands.size(); ++i) {
        const Type& its = body.type(body.inputs[i].value);
        const Values& whole = i < shape.carried ? carried[i] : values_[op.operands[i]];
        const bool cut = i >= shape.carried && i < shape.carried + shape.sliced;
        const auto begin = whole.begin() + (cut ? its.elements() * static_cast<int64_t>(part) : 0);
        operands.push_back({its, Values(begin, begin + its.elements())});
      }
      TRY(auto results, interpret(body, std::move(operands), precision_));
      for (size_t i = 0; i < results.size(); ++i) {
        if (i < shape.carried)
          carried[i] = std::move(results[i].values);
        else
          std::ranges::copy(results[i].values,
                            stacked[i - shape.carried].begin() +
                                results[i].type.elements() * static_cast<int64_t>(part));
      }
    }
    for (size_t i = 0; i < op.results.size(); ++i)
      values_[op.results[i]] =
          std::move(i < shape.carried ? carried[i] : stacked[i - shape.carried]);
    return {};
  }

  const Graph& graph_;
  Precision precision_;
  std::vector<Values> values_;
};

// To the nearest number with this many bits of fraction after the leading one, ties to even.
float cut_fraction(float value, int dropped) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (uint32_t{1} << (dropped - 1)) - 1;
  const uint32_t odd = (bits >> dropped) & 1;
  return std::bit_cast<float>((bits + half + odd) & ~((uint32_t{1} << dropped) - 1));
}

double as_f16(double value) {
  const auto near = static_cast<float>(value);
  if (std::abs(near) >= 65520) return std::copysign(HUGE_VAL, near);
  if (std::abs(near) < 0x1p-14F) return std::nearbyint(near * 0x1p24F) * 0x1p-24;
  return cut_fraction(near, 13);
}

}  // namespace

double rounded(double value, DType dtype) {
  // No whole number is near, as after a division by 0.
  if (!is_float(dtype) && dtype != DType::boolean && !std::isfinite(value)) return 0;
  switch (dtype) {
    case DType::f32: return static_cast<float>(value);
    case DType::f64: return value;
    case DType::bf16: return cut_fraction(static_cast<float>(value), 16);
    case DType::f16: return as_f16(value);
    case DType::i32: return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(value)));
    case DType::i64: return std::trunc(value);
    case DType::i8: return static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(value)));
    case DType::u32: return static_cast<double>(static_cast<uint32_t>(static_cast<int64_t>(value)));
    case DType::u8: return static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(value)));
    case DType::boolean: return value != 0 ? 1 : 0;
    case DType::i16:
    case DType::u16:
    case DType::u64: break;  // in no graph
  }
  return value;
}

double apply_elementwise(OpKind kind, std::span<const double> operands) {
  if (operands.size() == 1) return apply(kind, operands[0]);
  if (operands.size() == 2) return apply(kind, operands[0], operands[1]);
  return operands[0] != 0 ? operands[1] : operands[2];
}

uint64_t stream_key(int64_t seed, std::string_view stream) {
  return hash64(as_bytes(stream), static_cast<uint64_t>(seed));
}

Result<std::vector<Array>> interpret(const Graph& graph, std::vector<Array> inputs,
                                     Precision precision) {
  return Interpreter(graph, precision).run(std::move(inputs));
}

}  // namespace tutti
