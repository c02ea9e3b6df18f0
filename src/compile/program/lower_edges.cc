#include <algorithm>

#include "compile/program/frame_lowering.h"

namespace tutti {
namespace {

// Element by element: what it makes of a block of a product depends on that block alone.
bool keeps_to_blocks(const Graph& body) {
  return std::ranges::all_of(body.ops, [](const Node& op) {
    const OpClass its = op_class(op.kind);
    return op.kind == OpKind::constant || op.kind == OpKind::broadcast || its == OpClass::unary ||
           its == OpClass::binary || its == OpClass::ternary;
  });
}

}  // namespace

// A fused operation goes with the last product that it reads, if everything else that it reads is
// there before. An output may be the next value of an input and take its place: it is not made
// earlier than its turn if inputs are read in between.
void FrameLowering::find_edges() {
  std::vector<size_t> made(graph_.types.size());  // 0: an input
  of_input_.resize(graph_.types.size());
  for (const Input& input : graph_.inputs) of_input_[input.value] = true;
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Node& op = graph_.ops[i];
    for (const ValueId value : op.results) made[value] = i + 1;
    if (op_class(op.kind) == OpClass::shape)
      of_input_[op.results[0]] =
          std::ranges::any_of(op.operands, [&](ValueId value) { return of_input_[value]; });
  }
  const auto takes_a_place = [&](const Node& op, size_t from, size_t to) {
    const bool is_output = std::ranges::any_of(graph_.outputs, [&](const Output& output) {
      return std::ranges::count(op.results, output.value) != 0;
    });
    for (size_t i = from; is_output && i < to; ++i)
      for (const ValueId value : graph_.ops[i].operands)
        if (of_input_[value]) return true;
    return false;
  };
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Node& op = graph_.ops[i];
    if (op.kind != OpKind::fused || !keeps_to_blocks(*op.body)) continue;
    const ValueId last =
        *std::ranges::max_element(op.operands, {}, [&](ValueId value) { return made[value]; });
    if (made[last] == 0 || graph_.ops[made[last] - 1].kind != OpKind::matmul) continue;
    if (std::ranges::any_of(op.results, [&](ValueId value) {
          return graph_.type(value).dims != graph_.type(last).dims;
        }))
      continue;
    if (!takes_a_place(op, made[last], i)) edges_.emplace(last, i);
  }
}

// A product that only its edge reads lies where the edge's result will. Not where an output will
// that may take the place of an input: the edge still reads that.
void FrameLowering::share_with_edge(const Node& product) {
  const ValueId c = product.results[0];
  const auto edge = edges_.find(c);
  if (edge == edges_.end() || wanted_[c] || uses_[c] != 1) return;
  const Node& op = graph_.ops[edge->second];
  const bool reads_input = std::ranges::any_of(op.operands, [&](ValueId value) {
    return of_input_[value] && graph_.type(value).bytes() == graph_.type(c).bytes();
  });
  for (const ValueId value : op.results) {
    const bool is_output = std::ranges::count(graph_.outputs, value, &Output::value) != 0;
    if (graph_.type(value) != graph_.type(c) || (is_output && reads_input)) continue;
    if (!wanted_[value]) wanted_[value] = scratch(graph_.type(c));
    if (!wanted_[value]->is_dense()) continue;
    wanted_[c] = wanted_[value];
    return;
  }
}

void FrameLowering::attach_edge(const Node& product, size_t columns) {
  const ValueId c = product.results[0];
  const auto edge = edges_.find(c);
  Instruction& gemm = instructions_.back();
  const TensorRef& matrix = gemm.results[0];
  if (edge == edges_.end() || !refs_[c]->is_dense()) return;
  const Node& op = graph_.ops[edge->second];
  const std::vector<TensorRef> in = operands(op);
  std::vector<TensorRef> all = in;
  LoopStrides strides;
  for (const TensorRef& ref : in) strides.inputs.push_back(ref.strides);
  for (size_t i = 0; i < op.results.size(); ++i) {
    all.push_back(result(op, i, false));
    strides.outputs.push_back(all.back().strides);
  }
  auto kernel = lower_to_loops(*op.body, "k", {.strides = &strides, .columns = columns});
  if (!kernel || kernel->columns != matrix.type.dims[1].size ||
      kernel->row_count() != matrix.type.dims[0].size || kernel->reduces())
    return;
  const Dims& dims = graph_.type(c).dims;
  if (!std::equal(kernel->rows.begin(), kernel->rows.end(), dims.begin())) return;
  gemm.loops = loops_.add(*std::move(kernel));
  gemm.edge = std::move(all);
  done_.insert(edge->second);
  settle(op);
}

}  // namespace tutti
