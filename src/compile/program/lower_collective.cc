// Collectives: each is begun as soon as what it reads is there, and waited for when somebody wants
// what it makes, or the place of what it reads.
#include <algorithm>
#include <ranges>
#include <utility>

#include "compile/collective.h"
#include "compile/program/frame_lowering.h"
#include "compile/program/tensor_view.h"

namespace tutti {
namespace {

struct Use {
  uint32_t memory;
  int64_t first;  // bytes, with the gaps
  int64_t end;
  bool writes;
};

using Uses = std::vector<Use>;

// Also those of parts of one piece of memory with gaps between each other's.
bool collide(const Uses& a, const Uses& b) {
  return std::ranges::any_of(a, [&](const Use& one) {
    return std::ranges::any_of(b, [&](const Use& other) {
      return (one.writes || other.writes) && one.memory == other.memory && one.first < other.end &&
             other.first < one.end;
    });
  });
}

// The parts of a dimension that the ranks of an axis have, one after the other.
TensorRef by_ranks(const TensorRef& ref, const std::string& dim, int64_t ranks) {
  TensorRef out = ref;
  const size_t place = *ref.type.find(dim);
  out.type.dims[place].size /= ranks;
  out.type.dims.insert(out.type.dims.begin(), {"by_rank", ranks});
  out.strides.insert(out.strides.begin(), ref.strides[place] * out.type.dims[place + 1].size);
  return out;
}

}  // namespace

// The sum takes the place of the first of what is summed, when nobody else looks there: gradients
// of a large model are not there twice.
bool FrameLowering::may_reduce_in_place(const Node& op) const {
  if (op.kind != OpKind::lane_all_reduce && op.kind != OpKind::all_reduce) return false;
  ValueId value = op.operands[0];
  const TensorRef& first = *refs_[value];
  if (wanted_[op.results[0]] || first.buffer < parameters_ || !first.is_dense()) return false;
  for (;;) {
    if (uses_[value] != 1) return false;
    const auto maker = std::ranges::find_if(
        graph_.ops, [&](const Node& each) { return std::ranges::count(each.results, value) != 0; });
    if (maker == graph_.ops.end()) return false;
    if (op_class(maker->kind) != OpClass::shape || maker->kind == OpKind::concat) return true;
    value = maker->operands[0];
  }
}

void FrameLowering::lower_collective(const Node& op) {
  std::vector<TensorRef> in = dense_operands(op);
  if (may_reduce_in_place(op)) {
    refs_[op.results[0]] = dense(in[0].buffer, in[0].type, in[0].offset);
  } else {
    result(op, 0, true);
  }
  emit_collective(op, std::move(in), *refs_[op.results[0]]);
}

void FrameLowering::emit_collective(const Node& op, std::vector<TensorRef> in,
                                    const TensorRef& out) {
  Attributes attributes = op.attributes;
  attributes.set("call", std::string(op_info(op.kind).name));
  emit(Kernel::collective_start, in, {out}, attributes);
  emit(Kernel::collective_wait, std::move(in), {out}, std::move(attributes));
}

// Ranks send each other whole parts of memory. What lies otherwise, since its dimension is not the
// first, is copied together before, or apart after.
void FrameLowering::lower_between_ranks(const Node& op) {
  const auto dim = [&](const char* key) { return op.attributes.get<std::string>(key); };
  const int64_t ranks = collective_ranks(op);
  const bool exchanges = op.kind == OpKind::all_to_all;
  TensorRef in = *refs_[op.operands[0]];
  if (op.kind == OpKind::reduce_scatter || exchanges)
    in = by_ranks(in, dim(exchanges ? "to" : "dim"), ranks);
  in = as_dense(in);
  if (op.kind == OpKind::reduce_scatter) {
    emit_collective(op, {in}, result(op, 0, true));
    return;
  }
  const TensorRef parts = by_ranks(result(op, 0, false), dim(exchanges ? "from" : "dim"), ranks);
  const TensorRef made = parts.is_dense() ? parts : scratch(parts.type);
  emit_collective(op, {in}, made);
  if (made.buffer != parts.buffer) copy(made, parts);
}

// Collectives are begun in the order of the graph, which is that of all workers.
void FrameLowering::part_collectives() {
  if (std::ranges::count(instructions_, Kernel::collective_start, &Instruction::kernel) == 0)
    return;
  // A state and its next value are one piece of memory.
  const auto memory_of = [&](uint32_t buffer) {
    if (buffer < graph_.inputs.size() || buffer >= parameters_) return buffer;
    const std::string& name = graph_.outputs[buffer - graph_.inputs.size()].name;
    const auto state = std::ranges::find(graph_.inputs, name, &Input::name);
    return state == graph_.inputs.end() ? buffer
                                        : static_cast<uint32_t>(state - graph_.inputs.begin());
  };
  const auto uses_of = [&](const Instruction& one) {
    Uses uses;
    for (const auto& [refs, writes] :
         {std::pair{&one.operands, false}, {&one.results, true}, {&one.edge, true}})
      for (const TensorRef& ref : *refs) {
        int64_t last = ref.offset;
        for (size_t i = 0; i < ref.strides.size(); ++i)
          last += (ref.type.dims[i].size - 1) * ref.strides[i];
        const int64_t bytes = element_bytes(ref.type.dtype);
        uses.push_back({memory_of(ref.buffer), ref.offset * bytes, (last + 1) * bytes, writes});
      }
    return uses;
  };
  // What is copied for a collective, or of what it made, moves with it.
  using Refs = std::vector<TensorRef>;
  const auto copies = [&](const Instruction& one, const Refs& from, const Refs& to) {
    return one.kernel == Kernel::loops && loops_.is_copy(one.loops) &&
           from[0].buffer == to[0].buffer && from[0].offset == to[0].offset;
  };
  // Begun earlier.
  std::vector<Instruction> early;
  std::vector<Uses> before;
  for (size_t i = 0; i < instructions_.size(); ++i) {
    Instruction& one = instructions_[i];
    const Uses its = uses_of(one);
    size_t place = early.size();
    const bool starts = one.kernel == Kernel::collective_start;
    const bool packs = i + 1 < instructions_.size() &&
                       instructions_[i + 1].kernel == Kernel::collective_start &&
                       copies(one, one.results, instructions_[i + 1].operands);
    if (starts || packs)
      while (place > 0 && !(starts && early[place - 1].kernel == Kernel::collective_start) &&
             !collide(before[place - 1], its))
        --place;
    early.insert(early.begin() + static_cast<ptrdiff_t>(place), std::move(one));
    before.insert(before.begin() + static_cast<ptrdiff_t>(place), its);
  }
  // Waited for later.
  std::vector<Instruction> late;
  std::vector<Uses> after;
  for (size_t i = early.size(); i-- > 0;) {
    size_t place = late.size();  // late is in the other order
    const bool waits = early[i].kernel == Kernel::collective_wait;
    const bool unpacks = i > 0 && early[i - 1].kernel == Kernel::collective_wait &&
                         copies(early[i], early[i].operands, early[i - 1].results);
    if (waits || unpacks)
      while (place > 0 && !(waits && late[place - 1].kernel == Kernel::collective_wait) &&
             !collide(after[place - 1], before[i]))
        --place;
    late.insert(late.begin() + static_cast<ptrdiff_t>(place), std::move(early[i]));
    after.insert(after.begin() + static_cast<ptrdiff_t>(place), std::move(before[i]));
  }
  std::ranges::reverse(late);
  instructions_ = std::move(late);
}

}  // namespace tutti
