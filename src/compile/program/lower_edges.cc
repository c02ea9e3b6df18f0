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
// there before. A state's next value is not made earlier than its turn: others may still read it.
void FrameLowering::find_edges() {
  std::vector<size_t> made(graph_.types.size());  // 0: an input
  for (size_t i = 0; i < graph_.ops.size(); ++i)
    for (const ValueId value : graph_.ops[i].results) made[value] = i + 1;
  const auto is_state = [&](ValueId value) {
    return std::ranges::any_of(graph_.outputs, [&](const Output& output) {
      const Input* old = graph_.input(output.name);
      return output.value == value && old != nullptr && old->role == InputRole::state;
    });
  };
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Node& op = graph_.ops[i];
    if (op.kind != OpKind::fused || !keeps_to_blocks(*op.body) ||
        std::ranges::any_of(op.results, is_state))
      continue;
    const ValueId last =
        *std::ranges::max_element(op.operands, {}, [&](ValueId value) { return made[value]; });
    if (made[last] == 0 || graph_.ops[made[last] - 1].kind != OpKind::matmul) continue;
    if (std::ranges::any_of(op.results, [&](ValueId value) {
          return graph_.type(value).dims != graph_.type(last).dims;
        }))
      continue;
    edges_.emplace(last, i);
  }
}

// A product that only its edge reads lies where the edge's result will.
void FrameLowering::share_with_edge(const Node& product) {
  const ValueId c = product.results[0];
  const auto edge = edges_.find(c);
  if (edge == edges_.end() || wanted_[c] || uses_[c] != 1) return;
  for (const ValueId value : graph_.ops[edge->second].results) {
    if (graph_.type(value) != graph_.type(c)) continue;
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
