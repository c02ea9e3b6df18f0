#include "compile/op.h"

#include <array>

#include "base/assert.h"

namespace tutti {
namespace {

using enum OpClass;

constexpr std::array<OpInfo, kOpKinds> kOps = {{
    {OpKind::constant, "constant", source, 0, 1, true},
    {OpKind::iota, "iota", source, 0, 1, true},
    {OpKind::random, "random", source, 1, 1, true},
    {OpKind::neg, "neg", unary, 1, 1, false},
    {OpKind::abs, "abs", unary, 1, 1, false},
    {OpKind::sign, "sign", unary, 1, 1, false},
    {OpKind::exp, "exp", unary, 1, 1, false},
    {OpKind::log, "log", unary, 1, 1, false},
    {OpKind::sqrt, "sqrt", unary, 1, 1, false},
    {OpKind::rsqrt, "rsqrt", unary, 1, 1, false},
    {OpKind::tanh, "tanh", unary, 1, 1, false},
    {OpKind::erf, "erf", unary, 1, 1, false},
    {OpKind::sin, "sin", unary, 1, 1, false},
    {OpKind::cos, "cos", unary, 1, 1, false},
    {OpKind::floor, "floor", unary, 1, 1, false},
    {OpKind::logical_not, "not", unary, 1, 1, false},
    {OpKind::is_finite, "is_finite", unary, 1, 1, false},
    {OpKind::cast, "cast", unary, 1, 1, true},
    {OpKind::add, "add", binary, 2, 1, false},
    {OpKind::sub, "sub", binary, 2, 1, false},
    {OpKind::mul, "mul", binary, 2, 1, false},
    {OpKind::div, "div", binary, 2, 1, false},
    {OpKind::pow, "pow", binary, 2, 1, false},
    {OpKind::maximum, "max", binary, 2, 1, false},
    {OpKind::minimum, "min", binary, 2, 1, false},
    {OpKind::logical_and, "and", binary, 2, 1, false},
    {OpKind::logical_or, "or", binary, 2, 1, false},
    {OpKind::shift_right, "shift_right", binary, 2, 1, false},
    {OpKind::equal, "equal", binary, 2, 1, false},
    {OpKind::less, "less", binary, 2, 1, false},
    {OpKind::less_equal, "less_equal", binary, 2, 1, false},
    {OpKind::select, "select", ternary, 3, 1, false},
    {OpKind::reshape, "reshape", shape, 1, 1, true},
    {OpKind::transpose, "transpose", shape, 1, 1, false},
    {OpKind::broadcast, "broadcast", shape, 1, 1, true},
    {OpKind::slice, "slice", shape, 1, 1, false},
    {OpKind::pad, "pad", shape, 1, 1, false},
    {OpKind::concat, "concat", shape, kAnyNumber, 1, false},
    {OpKind::reduce_sum, "sum", reduce, 1, 1, false},
    {OpKind::reduce_max, "reduce_max", reduce, 1, 1, false},
    {OpKind::argmax, "argmax", reduce, 1, 1, false},
    {OpKind::cumulative_sum, "cumulative_sum", reduce, 1, 1, false},
    {OpKind::gather, "gather", index, 2, 1, false},
    {OpKind::scatter_add, "scatter_add", index, 2, 1, false},
    {OpKind::update, "update", index, 3, 1, false},
    {OpKind::repeat, "repeat", control, kAnyNumber, kAnyNumber, false},
    {OpKind::fused, "fused", control, kAnyNumber, kAnyNumber, false},
    {OpKind::lane_all_reduce, "lane_all_reduce", control, kAnyNumber, 1, false},
    {OpKind::lane_reduce_scatter, "lane_reduce_scatter", control, kAnyNumber, 1, false},
    {OpKind::shard_gather, "shard_gather", control, 1, 1, true},
    {OpKind::matmul, "matmul", large, 2, 1, false},
    {OpKind::gelu, "gelu", large, 1, 1, false},
    {OpKind::gelu_grad, "gelu_grad", large, 2, 1, false},
    {OpKind::softmax, "softmax", large, 1, 1, false},
    {OpKind::layer_norm, "layer_norm", large, 3, 3, false},
    {OpKind::layer_norm_grad, "layer_norm_grad", large, 5, kAnyNumber, false},
    {OpKind::rms_norm, "rms_norm", large, 2, 2, false},
    {OpKind::rms_norm_grad, "rms_norm_grad", large, 4, kAnyNumber, false},
    {OpKind::attention, "attention", large, kAnyNumber, 2, false},
    {OpKind::attention_grad, "attention_grad", large, 6, 3, false},
    {OpKind::linear_cross_entropy, "linear_cross_entropy", large, 3, 1, false},
    {OpKind::linear_cross_entropy_grad, "linear_cross_entropy_grad", large, 4, kAnyNumber, false},
    {OpKind::squared_norm, "squared_norm", large, kAnyNumber, 1, false},
    {OpKind::square_chunks, "square_chunks", large, 1, 1, false},
    {OpKind::join_chunks, "join_chunks", large, 1, 1, false},
    {OpKind::adamw, "adamw", large, 7, 3, false},
    {OpKind::all_reduce, "all_reduce", collective, 1, 1, false},
    {OpKind::all_gather, "all_gather", collective, 1, 1, false},
    {OpKind::reduce_scatter, "reduce_scatter", collective, 1, 1, false},
    {OpKind::all_to_all, "all_to_all", collective, 1, 1, false},
    {OpKind::own_slice, "own_slice", collective, 1, 1, false},
}};

}  // namespace

const OpInfo& op_info(OpKind kind) {
  const OpInfo& info = kOps[static_cast<size_t>(kind)];
  TUTTI_ASSERT(info.kind == kind, "the table is in the order of OpKind");
  return info;
}

std::optional<OpKind> op_named(std::string_view name) {
  for (const OpInfo& info : kOps)
    if (info.name == name) return info.kind;
  return std::nullopt;
}

bool is_collective(OpKind kind) {
  return kind == OpKind::lane_all_reduce || kind == OpKind::lane_reduce_scatter ||
         kind == OpKind::shard_gather;
}

bool is_elementwise(OpKind kind) {
  const OpClass its = op_class(kind);
  return its == unary || its == binary || its == ternary;
}

}  // namespace tutti
