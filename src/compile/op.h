// The operations of the graph: primitives, which say exactly what they compute, and larger ones,
// which have kernels of their own and a reference made of primitives (decompose.h).
//
// Results follow from operands and attributes alone (infer.h), except where an operation makes
// something of nothing: those carry their type ("typed" below). With a {part} an operation has only
// some of its results (gradient_part.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class OpKind : uint8_t {
  // of nothing
  constant,  // {value}: every element
  iota,      // {dim}: the index along it
  random,    // (step) {seed, stream}: 32 random bits for each global index
  // element by element, one operand
  neg,
  abs,
  sign,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sin,
  cos,
  floor,
  logical_not,
  is_finite,
  cast,
  // two operands of one type
  add,
  sub,
  mul,
  div,  // of whole numbers: cut towards 0, and 0 by 0
  pow,
  maximum,
  minimum,
  logical_and,
  logical_or,
  shift_right,  // of u32
  equal,
  less,
  less_equal,
  // three
  select,  // (condition, if true, if false)
  // shape
  reshape,    // typed: the same elements in the same order
  transpose,  // {order}: names
  broadcast,  // typed: repeated along the dimensions that the operand has not
  slice,      // {dim, start, size}
  pad,        // {dim, low, high}: with zeros
  concat,     // {dim}: any number of operands
  // over dimensions
  reduce_sum,      // {dims}
  reduce_max,      // {dims}
  argmax,          // {dim}: the first of the greatest
  cumulative_sum,  // {dim}: up to and with itself
  // by index
  gather,  // (table, indices) {dim}: rows of a table; dimension `dim` gives way to the indices'
  scatter_add,  // (indices, updates) {dim, size}: what gather's gradient is
  update,  // (cache, rows, position) {dim}: rows from a position on; those past the end are lost
  // control
  repeat,  // a region over and over, see graph.h
  fused,   // a region that becomes one kernel, see passes
  // With all workers of an axis; nobody computes these alone. The sum over all lanes of the data,
  // joined by the one tree, from what this worker has joined: one operand for each whole node of it
  // among its lanes, in their order.
  lane_all_reduce,  // {axis, lanes, first, count}: lanes in all, this worker's first, its number
  // … of which each worker gets its shard: {…, counts, rank}: elements of each, and which is ours.
  lane_reduce_scatter,
  shard_gather,  // typed: all workers' shards one after the other {axis, counts, rank}
  // larger
  matmul,           // (a, b) {over}: summed over these names; names in both besides are batched
  gelu,             // {tanh}: by erf, or by the approximation with tanh
  gelu_grad,        // (x, dy) {tanh}
  softmax,          // {dim}
  layer_norm,       // (x, scale, shift) {dim, epsilon}: y, mean, 1/deviation
  layer_norm_grad,  // (dy, x, scale, mean, 1/deviation) {dim, part}: dx, dscale, dshift
  rms_norm,         // (x, scale) {dim, epsilon}: y, 1/root of mean square
  rms_norm_grad,    // (dy, x, scale, 1/root) {dim, part}: dx, dscale
  // (q, k, v) {causal, scale, query, key, head}: out, log of the sum of exponentials. With a fourth
  // operand, position: keys are a cache, and query i sees those up to position + i.
  attention,
  attention_grad,  // (dout, q, k, v, out, lse) {…}: dq, dk, dv
  // (x, w, targets) {over, vocab}: loss of each; 0 of targets below 0, those from vocab on refused
  linear_cross_entropy,
  linear_cross_entropy_grad,  // (x, w, targets, dloss) {over, vocab, part}: loss, dx, dw
  squared_norm,               // of any number of operands: the sum of squares of all elements
  square_chunks,              // of canonical chunks of all elements (chunk.h) the sums of squares
  join_chunks,                // sums of chunks, joined as squared_norm joins them
  adamw,  // (weight, first, second, gradient, its scale, rate, step) {…}: the first three anew
  // between the {ranks} ranks that differ along one {axis} of the mesh only, in its order
  all_reduce,      // the sum of what they have, or with {op="max"} the greatest
  all_gather,      // {dim}: what they have, side by side
  reduce_scatter,  // {dim}: of the sum, each its part
  all_to_all,      // {from, to}: parts along `from` become parts along `to`
  own_slice,       // {dim}: of what all have, each its part; nothing is sent
  count_
};

constexpr size_t kOpKinds = static_cast<size_t>(OpKind::count_);

enum class OpClass : uint8_t {
  source,
  unary,
  binary,
  ternary,
  shape,
  reduce,
  index,
  control,
  large,
  collective
};

constexpr int kAnyNumber = -1;

struct OpInfo {
  OpKind kind;
  std::string_view name;
  OpClass op_class;
  int operands;  // or kAnyNumber
  int results;   // or kAnyNumber
  bool typed;    // the type of its result is given, not inferred
};

const OpInfo& op_info(OpKind kind);
std::optional<OpKind> op_named(std::string_view name);

inline OpClass op_class(OpKind kind) { return op_info(kind).op_class; }
bool is_elementwise(OpKind kind);
bool is_collective(OpKind kind);

}  // namespace tutti
