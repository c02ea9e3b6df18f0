#include <fmt/format.h>

#include "compile/loop/loop_kernel.h"

namespace tutti {
namespace {

bool ends_loop(const LoopNode& node) { return node.op == LoopOp::sum || node.op == LoopOp::max; }

std::string node_text(const LoopKernel& kernel, size_t place) {
  const LoopNode& node = kernel.nodes[place];
  std::string operands;
  for (const uint32_t operand : node.operands)
    operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", operand);
  switch (node.op) {
    case LoopOp::load: return fmt::format("%{} = load p{}", place, node.index);
    case LoopOp::store: return fmt::format("store p{}, {}", node.index, operands);
    case LoopOp::constant: return fmt::format("%{} = {}", place, double_text(node.number));
    case LoopOp::index:
      return fmt::format(
          "%{} = index {}", place,
          node.index < kernel.rows.size() ? kernel.rows[node.index].name : kernel.column_name);
    case LoopOp::random:
      return fmt::format("%{} = random p{}, {:016x}", place, node.index, node.key);
    case LoopOp::apply: return fmt::format("%{} = {} {}", place, op_info(node.kind).name, operands);
    case LoopOp::sum: return fmt::format("%{} = sum {}", place, operands);
    case LoopOp::max: return fmt::format("%{} = max {}", place, operands);
  }
  return {};
}

}  // namespace

int64_t LoopKernel::row_count() const {
  int64_t count = 1;
  for (const Dim& dim : rows) count *= dim.size;
  return count;
}

bool LoopKernel::reduces() const {
  for (const LoopNode& node : nodes)
    if (ends_loop(node)) return true;
  return false;
}

std::vector<uint32_t> LoopKernel::before_loop(uint32_t stage) const {
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].per_row && !ends_loop(nodes[i]) && nodes[i].stage == stage) places.push_back(i);
  return places;
}

std::vector<uint32_t> LoopKernel::in_loop(uint32_t stage) const {
  std::vector<bool> wanted(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    const LoopNode& node = nodes[i];
    const bool ends = ends_loop(node) || (node.op == LoopOp::store && !node.per_row);
    if (ends && node.stage == stage) wanted[i] = true;
    if (!wanted[i]) continue;
    for (const uint32_t operand : node.operands)
      if (!nodes[operand].per_row) wanted[operand] = true;
  }
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (wanted[i]) places.push_back(i);
  return places;
}

std::string LoopKernel::text() const {
  std::string out = fmt::format("kernel {} rows [{}] columns {}={} {{\n", name, dims_text(rows),
                                column_name, columns);
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string strides;
    for (const int64_t stride : parameters[i].row_strides) strides += fmt::format("{}, ", stride);
    out += fmt::format("  p{}: {} {} [{}{}]\n", i, i < reads ? "reads" : "writes",
                       dtype_name(parameters[i].dtype), strides, parameters[i].column_stride);
  }
  for (uint32_t stage = 0; stage <= stages; ++stage) {
    for (const uint32_t place : before_loop(stage))
      out += fmt::format("  {}\n", node_text(*this, place));
    const auto loop = in_loop(stage);
    if (loop.empty()) continue;
    out += "  loop {\n";
    for (const uint32_t place : loop) out += fmt::format("    {}\n", node_text(*this, place));
    out += "  }\n";
  }
  return out + "}\n";
}

}  // namespace tutti
