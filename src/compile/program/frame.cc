#include "compile/program/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>

#include "base/assert.h"
#include "compile/program/frame_lowering.h"
#include "compile/program/memory_plan.h"
#include "compile/program/overwrite.h"
#include "compile/program/tensor_view.h"

namespace tutti {

int64_t LoopTable::add(LoopKernel kernel) {
  kernel.name = "k";
  const std::string text = kernel.text();
  const auto [found, added] = known_.emplace(text, std::ssize(kernels_));
  if (added) {
    kernel.name = fmt::format("k{}", found->second);
    kernels_.push_back(std::move(kernel));
  }
  return found->second;
}

bool LoopTable::is_copy(int64_t index) const {
  const auto& nodes = kernels_[static_cast<size_t>(index)].nodes;
  return nodes.size() == 2 && nodes[0].op == LoopOp::load && nodes[1].op == LoopOp::store;
}

Result<FrameCode> lower_frame(const Graph& graph, LoopTable& loops) {
  FrameLowering lowering(graph, loops);
  return lowering.run();
}

FrameLowering::FrameLowering(const Graph& graph, LoopTable& loops)
    : graph_(graph),
      loops_(loops),
      parameters_(static_cast<uint32_t>(graph.inputs.size() + graph.outputs.size())),
      refs_(graph.types.size()),
      wanted_(graph.types.size()),
      uses_(graph.types.size()) {}

Result<FrameCode> FrameLowering::run() {
  for (uint32_t i = 0; i < graph_.inputs.size(); ++i)
    refs_[graph_.inputs[i].value] = dense(i, graph_.type(graph_.inputs[i].value));
  for (const Node& op : graph_.ops)
    for (const ValueId operand : op.operands) ++uses_[operand];
  want_outputs();
  want_parts_of_concats();
  find_edges();
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Node& op = graph_.ops[i];
    if (done_.contains(i)) continue;
    at_ = op.at;
    auto done = lower(op);
    if (!done)
      return fail(done.error().context(
          fmt::format("{}{}{}", op_info(op.kind).name, op.at.empty() ? "" : " of ", op.at)));
  }
  at_.clear();
  copy_outputs();
  part_collectives();
  return place_scratch();
}

// An output is made where it belongs, if it is made here and is not two outputs at once. A state
// that is still read after its next value is made gets that at the end.
void FrameLowering::want_outputs() {
  const Overwrite overwrite(graph_);
  for (uint32_t i = 0; i < graph_.outputs.size(); ++i) {
    const Output& output = graph_.outputs[i];
    const Input* old = graph_.input(output.name);
    const bool early = old != nullptr && old->role == InputRole::state &&
                       overwrite.is_too_early(old->value, output.value);
    if (!overwrite.is_made(output.value) || early || wanted_[output.value]) continue;
    wanted_[output.value] =
        dense(static_cast<uint32_t>(graph_.inputs.size()) + i, graph_.type(output.value));
  }
}

// What goes into a concat only is made in its part of the whole, and what is only looked at in
// another way there, where that is wanted.
void FrameLowering::want_parts_of_concats() {
  for (const Node& op : std::views::reverse(graph_.ops)) {
    if (op.kind == OpKind::reshape && wanted_[op.results[0]]) {
      const ValueId source = op.operands[0];
      if (uses_[source] == 1 && !refs_[source] && !wanted_[source])
        wanted_[source] = reshaped(*wanted_[op.results[0]], graph_.type(source));
    }
    if (op.kind != OpKind::concat) continue;
    const ValueId whole = op.results[0];
    if (!wanted_[whole]) wanted_[whole] = scratch(graph_.type(whole));
    const std::string dim = op.attributes.get<std::string>("dim");
    int64_t start = 0;
    for (const ValueId operand : op.operands) {
      const int64_t size = graph_.type(operand).size_of(dim);
      if (uses_[operand] == 1 && !refs_[operand] && !wanted_[operand])
        wanted_[operand] = sliced(*wanted_[whole], dim, start, size);
      start += size;
    }
  }
}

void FrameLowering::copy_outputs() {
  for (uint32_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId value = graph_.outputs[i].value;
    const TensorRef to = dense(static_cast<uint32_t>(graph_.inputs.size()) + i, graph_.type(value));
    if (refs_[value]->buffer != to.buffer) copy(*refs_[value], to);
  }
}

TensorRef FrameLowering::scratch(const Type& type) {
  scratch_bytes_.push_back(type.bytes());
  return dense(parameters_ + static_cast<uint32_t>(scratch_bytes_.size() - 1), type);
}

TensorRef FrameLowering::result(const Node& op, size_t i, bool must_be_dense) {
  const ValueId value = op.results[i];
  const auto& wanted = wanted_[value];
  const bool fits = wanted && (!must_be_dense || wanted->is_dense());
  refs_[value] = fits ? *wanted : scratch(graph_.type(value));
  return *refs_[value];
}

// What was made elsewhere than it was wanted is copied there.
void FrameLowering::settle(const Node& op) {
  for (const ValueId value : op.results) {
    if (!wanted_[value] || !refs_[value]) continue;
    const TensorRef& is = *refs_[value];
    const TensorRef& wanted = *wanted_[value];
    if (!same_place(is, wanted)) copy(is, wanted);
    refs_[value] = wanted;
  }
}

Instruction& FrameLowering::emit(Kernel kernel, std::vector<TensorRef> operands,
                                 std::vector<TensorRef> results, Attributes attributes) {
  instructions_.push_back({.kernel = kernel,
                           .attributes = std::move(attributes),
                           .operands = std::move(operands),
                           .results = std::move(results),
                           .at = at_});
  return instructions_.back();
}

void FrameLowering::emit_loops(const Graph& body, std::vector<TensorRef> operands,
                               std::vector<TensorRef> results) {
  LoopStrides strides;
  for (const TensorRef& ref : operands) strides.inputs.push_back(ref.strides);
  for (const TensorRef& ref : results) strides.outputs.push_back(ref.strides);
  auto kernel = lower_to_loops(body, "k", {.strides = &strides});
  const std::vector<TensorRef> wanted = results;
  if (!kernel) {  // as things lie; without gaps it can be done
    for (TensorRef& ref : operands) ref = as_dense(ref);
    for (TensorRef& ref : results) ref = ref.is_dense() ? ref : scratch(ref.type);
    kernel = lower_to_loops(body, "k");
  }
  TUTTI_ASSERT(kernel.has_value(), "what was fused can be lowered");
  emit(Kernel::loops, std::move(operands), results).loops = loops_.add(*std::move(kernel));
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].buffer != wanted[i].buffer) copy(results[i], wanted[i]);
}

void FrameLowering::copy(const TensorRef& from, const TensorRef& to) {
  Graph body;
  const ValueId x = body.add_input("in0", from.type);
  body.add_output("out0", x);
  emit_loops(body, {from}, {to});
}

TensorRef FrameLowering::as_dense(const TensorRef& ref) {
  if (ref.is_dense()) return ref;
  const TensorRef made = scratch(ref.type);
  copy(ref, made);
  return made;
}

Result<void> FrameLowering::lower(const Node& op) {
  if (op.kind == OpKind::own_slice)
    return fail(Code::invalid, "a program is of one rank, and this graph is of all of them");
  if (op_class(op.kind) == OpClass::shape) {
    TRY_DO(lower_shape(op));
  } else if (op.kind == OpKind::repeat) {
    TRY_DO(lower_repeat(op));
  } else if (op.kind == OpKind::fused) {
    std::vector<TensorRef> results;
    for (size_t i = 0; i < op.results.size(); ++i) results.push_back(result(op, i, false));
    emit_loops(*op.body, operands(op), std::move(results));
  } else if (is_collective(op.kind) || op.kind == OpKind::all_reduce) {
    lower_collective(op);
  } else if (op_class(op.kind) == OpClass::collective) {
    lower_between_ranks(op);
  } else if (op_class(op.kind) == OpClass::large || op_class(op.kind) == OpClass::index) {
    TRY_DO(lower_large(op));
  } else if (op.kind == OpKind::reduce_sum || op.kind == OpKind::reduce_max) {
    lower_reduction(op);
  } else if (op.kind == OpKind::argmax || op.kind == OpKind::cumulative_sum) {
    lower_plainly(op);
  } else {
    lower_alone(op);
  }
  settle(op);
  return {};
}

std::vector<TensorRef> FrameLowering::operands(const Node& op) const {
  std::vector<TensorRef> all;
  for (const ValueId operand : op.operands) all.push_back(*refs_[operand]);
  return all;
}

std::vector<TensorRef> FrameLowering::dense_operands(const Node& op) {
  std::vector<TensorRef> all;
  for (const ValueId operand : op.operands) all.push_back(as_dense(*refs_[operand]));
  return all;
}

void FrameLowering::lower_plainly(const Node& op) {
  std::vector<TensorRef> in = dense_operands(op);
  std::vector<TensorRef> out;
  for (size_t i = 0; i < op.results.size(); ++i) out.push_back(result(op, i, true));
  emit(Kernel::plain, std::move(in), std::move(out), op.attributes).kind = op.kind;
}

// An operation that goes into loops, but with no others.
Graph FrameLowering::alone(const Node& op, const std::vector<TensorRef>& operands) const {
  Graph body;
  Node copied = op;
  for (size_t i = 0; i < operands.size(); ++i)
    copied.operands[i] = body.add_input(fmt::format("in{}", i), operands[i].type);
  copied.results = {body.add_value(graph_.type(op.results[0]))};
  body.add_output("out0", copied.results[0]);
  body.ops.push_back(std::move(copied));
  return body;
}

void FrameLowering::lower_alone(const Node& op) {
  const std::vector<TensorRef> in = operands(op);
  const TensorRef to = result(op, 0, false);
  emit_loops(alone(op, in), in, {to});
}

Result<void> FrameLowering::lower_shape(const Node& op) {
  const TensorRef& x = *refs_[op.operands[0]];
  const Type& type = graph_.type(op.results[0]);
  auto& made = refs_[op.results[0]];
  const std::string dim = op.attributes.get<std::string>("dim");
  switch (op.kind) {
    case OpKind::transpose: made = transposed(x, op.attributes.get<Names>("order")); return {};
    case OpKind::broadcast: made = broadcasted(x, type); return {};
    case OpKind::slice:
      made = sliced(x, dim, op.attributes.get<int64_t>("start"), type.size_of(dim));
      return {};
    case OpKind::reshape:
      made = reshaped(x, type);
      if (!made) made = reshaped(as_dense(x), type);
      return {};
    case OpKind::pad: {
      const TensorRef whole = result(op, 0, false);
      fill(whole, 0);
      copy(x, sliced(whole, dim, op.attributes.get<int64_t>("low"), x.type.size_of(dim)));
      return {};
    }
    case OpKind::concat: {
      const TensorRef whole = result(op, 0, false);
      int64_t start = 0;
      for (const ValueId operand : op.operands) {
        const int64_t size = graph_.type(operand).size_of(dim);
        const TensorRef there = sliced(whole, dim, start, size);
        const TensorRef& is = *refs_[operand];
        if (is.buffer != there.buffer || is.offset != there.offset) copy(is, there);
        start += size;
      }
      return {};
    }
    default: return fail(Code::internal, "no change of shape");
  }
}

void FrameLowering::fill(const TensorRef& to, double value) {
  Graph body;
  Node constant{.kind = OpKind::constant, .attributes = {{"value", value}}};
  const auto made = body.add(std::move(constant), &to.type);
  body.add_output("out0", made->front());
  emit_loops(body, {}, {to});
}

namespace {

// Where a carried value is kept as it comes into each round, among the stacked results.
std::vector<std::optional<size_t>> kept_as(const Graph& body, size_t carried) {
  std::vector<std::optional<size_t>> kept(carried);
  for (size_t i = 0; i < carried; ++i)
    for (size_t k = carried; k < body.outputs.size(); ++k)
      if (body.outputs[k].value == body.inputs[i].value) kept[i] = k;
  return kept;
}

}  // namespace

// Every round is the same frame over other parts. What is carried goes to and fro between two
// places, beginning where it is and ending where it is wanted; what is kept of each round anyway is
// made there by the round before.
Result<void> FrameLowering::lower_repeat(const Node& op) {
  const RepeatShape shape = repeat_shape(op);
  TRY(const FrameCode frame, lower_frame(*op.body, loops_));
  std::vector<TensorRef> in = dense_operands(op);
  std::vector<TensorRef> out;
  for (size_t i = 0; i < op.results.size(); ++i) out.push_back(result(op, i, true));
  const auto kept = kept_as(*op.body, shape.carried);
  const auto place_of = [&](size_t round) {
    return static_cast<int64_t>(shape.reversed ? shape.count - 1 - round : round);
  };
  // What is carried and written over only when it was read stays in one place after the first.
  const Overwrite overwrite(*op.body);
  std::vector<TensorRef> swap[2];
  for (size_t i = 0; i < shape.carried; ++i) {
    const bool in_place =
        shape.count > 1 && !kept[i] &&
        !overwrite.is_too_early(op.body->inputs[i].value, op.body->outputs[i].value);
    for (auto& side : swap)
      side.push_back(in_place ? out[i] : shape.count > 1 && !kept[i] ? scratch(in[i].type) : in[i]);
  }
  for (size_t i = 0; i < shape.carried; ++i) {
    if (!kept[i]) continue;
    const TensorRef first = part(out[*kept[i]], place_of(0));
    copy(in[i], first);
    in[i] = first;
  }
  const auto carried_into = [&](size_t round, size_t i) {
    return round == 0 ? in[i] : kept[i] ? part(out[*kept[i]], place_of(round)) : swap[round % 2][i];
  };
  const TensorRef room = scratch({DType::u8, {{"bytes", std::max<int64_t>(frame.bytes, 1)}}});
  for (size_t round = 0; round < shape.count; ++round) {
    std::vector<TensorRef> buffers;
    for (size_t i = 0; i < in.size(); ++i) {
      const bool carried = i < shape.carried;
      const bool cut = !carried && i < shape.carried + shape.sliced;
      buffers.push_back(carried ? carried_into(round, i)
                        : cut   ? part(in[i], place_of(round))
                                : in[i]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const bool last = round + 1 == shape.count;
      buffers.push_back(i >= shape.carried ? part(out[i], place_of(round))
                        : last             ? out[i]
                                           : carried_into(round + 1, i));
    }
    buffers.push_back(room);
    instantiate(frame, buffers);
  }
  return {};
}

void FrameLowering::instantiate(const FrameCode& frame, const std::vector<TensorRef>& buffers) {
  const auto moved = [&](std::vector<TensorRef>& refs) {
    for (TensorRef& ref : refs) {
      const TensorRef& base = buffers[ref.buffer];
      const int64_t bytes = element_bytes(ref.type.dtype);
      ref.offset += base.offset * element_bytes(base.type.dtype) / bytes;
      ref.buffer = base.buffer;
    }
  };
  for (Instruction instruction : frame.instructions) {
    moved(instruction.operands);
    moved(instruction.results);
    moved(instruction.edge);
    if (instruction.kernel == Kernel::loops && loops_.is_copy(instruction.loops) &&
        same_place(instruction.operands[0], instruction.results[0]))
      continue;
    instructions_.push_back(std::move(instruction));
  }
}

Result<FrameCode> FrameLowering::place_scratch() {
  std::vector<Lifetime> lifetimes(scratch_bytes_.size());
  for (size_t i = 0; i < lifetimes.size(); ++i)
    lifetimes[i] = {.bytes = scratch_bytes_[i], .first = ~0U, .last = 0};
  const auto each = [&](const auto& visit) {
    for (uint32_t step = 0; step < instructions_.size(); ++step)
      for (auto* refs :
           {&instructions_[step].operands, &instructions_[step].results, &instructions_[step].edge})
        for (TensorRef& ref : *refs)
          if (ref.buffer >= parameters_) visit(ref, ref.buffer - parameters_, step);
  };
  each([&](TensorRef&, uint32_t i, uint32_t step) {
    lifetimes[i].first = std::min(lifetimes[i].first, step);
    lifetimes[i].last = std::max(lifetimes[i].last, step);
  });
  for (Lifetime& its : lifetimes)
    if (its.first == ~0U) its = {.bytes = 0, .first = 0, .last = 0};  // nobody uses it
  const MemoryPlan plan = plan_memory(lifetimes);
  each([&](TensorRef& ref, uint32_t i, uint32_t) {
    ref.buffer = parameters_;
    ref.offset += plan.offsets[i] / element_bytes(ref.type.dtype);
  });
  return FrameCode{.instructions = std::move(instructions_), .bytes = plan.bytes};
}

}  // namespace tutti
