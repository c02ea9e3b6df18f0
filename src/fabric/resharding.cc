#include "fabric/resharding.h"

#include <algorithm>

#include "base/units.h"

namespace tutti {

namespace {

// Between two looks at whether the epoch is over: about a millisecond.
constexpr uint64_t kSliceBytes = 8 << 20;

bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

Result<std::map<uint32_t, uint32_t>> members_by_rank(const Plan& plan,
                                                     std::span<const uint32_t> members) {
  std::map<uint32_t, uint32_t> by_rank;
  for (uint32_t i = 0; i < members.size(); ++i) by_rank[members[i]] = i;
  std::optional<Mesh> last;  // most moves are between the same two
  for (const bool source : {true, false}) {
    for (const Move& move : plan.moves()) {
      const Mesh& mesh = (source ? move.from : move.to).mesh();
      if (last == mesh) continue;
      last = mesh;
      for (const uint32_t rank : mesh.ranks())
        if (!by_rank.contains(rank))
          return fail(Code::invalid,
                      "rank {} has a part in the reshard of {}, but is not in the group; make a "
                      "group of all ranks of both layouts",
                      rank, move.name);
    }
  }
  return by_rank;
}

}  // namespace

Result<std::unique_ptr<Resharding>> Resharding::make(const Call& call, uint32_t rank,
                                                     std::span<const uint32_t> members,
                                                     std::vector<bool> far) {
  if (call.plan == nullptr) return fail(Code::invalid, "a reshard needs a plan; see Plan::make");
  const Plan& plan = *call.plan;
  TRY(const auto by_rank, members_by_rank(plan, members));
  auto made = std::unique_ptr<Resharding>(new Resharding(call));
  made->far_ = std::move(far);
  made->far_.resize(members.size());
  const auto bytes_at = [&](const Layout& layout, DType type) -> uint64_t {
    const auto place = layout.mesh().place_of(rank);
    return place ? layout.box(*place).elements() * dtype_bytes(type) : 0;
  };
  for (const Move& move : plan.moves()) {
    made->first_tensor_.push_back(made->tensors());
    for (const DType type : move.types) {
      made->input_bytes_.push_back(bytes_at(move.from, type));
      made->output_bytes_.push_back(bytes_at(move.to, type));
    }
  }
  TRY_DO(made->check(rank));
  made->shared_.resize(made->tensors());
  made->reads_from_.resize(members.size());
  made->is_read_by_.resize(members.size());
  plan.visit_received(rank, [&](const SliceCopy& copy) { made->list_slices(copy, by_rank); });
  plan.visit_sent(rank, [&](const SliceCopy& copy) {
    if (copy.to == rank) return;
    made->is_read_by_[by_rank.at(copy.to)] = true;
    const uint32_t first = made->first_tensor_[copy.move];
    for (size_t i = 0; i < plan.moves()[copy.move].types.size(); ++i)
      made->shared_[first + i] = true;
  });
  return made;
}

Result<void> Resharding::check(uint32_t rank) const {
  const auto wants = [&](const auto& given, const std::vector<uint64_t>& bytes) {
    return given.size() == bytes.size() ||
           (given.empty() && std::ranges::count(bytes, 0U) == std::ssize(bytes));
  };
  if (!wants(call_.inputs, input_bytes_) || !wants(call_.outputs, output_bytes_))
    return fail(Code::invalid,
                "a reshard of {} tensors wants as many inputs and outputs, not {} and {}",
                tensors(), call_.inputs.size(), call_.outputs.size());
  for (uint32_t move = 0; move < first_tensor_.size(); ++move)
    for (uint32_t i = 0; i < call_.plan->moves()[move].types.size(); ++i)
      TRY_DO(check_tensor(rank, move, first_tensor_[move] + i));
  return {};
}

Result<void> Resharding::check_tensor(uint32_t rank, uint32_t index, uint32_t tensor) const {
  const Move& move = call_.plan->moves()[index];
  const uint64_t in = input_bytes_[tensor];
  const uint64_t out = output_bytes_[tensor];
  if (in != 0 && call_.inputs[tensor] == nullptr)
    return fail(Code::invalid, "rank {} holds {} of {} ({}), but brings no input", rank,
                move.from.box(*move.from.mesh().place_of(rank)).text(), move.name,
                move.from.text());
  if (out != 0 && call_.outputs[tensor] == nullptr)
    return fail(Code::invalid, "rank {} is to hold {} of {} ({}), but has no output for it", rank,
                move.to.box(*move.to.mesh().place_of(rank)).text(), move.name, move.to.text());
  if (in == 0 || out == 0 || !overlap(call_.inputs[tensor], in, call_.outputs[tensor], out))
    return {};
  // In place is fine where nothing is written.
  const Layout::Holding before = move.from.holding(*move.from.mesh().place_of(rank));
  const Layout::Holding after = move.to.holding(*move.to.mesh().place_of(rank));
  const bool by_lane = move.from.lanes() == move.to.lanes() && move.from.op() == move.to.op() &&
                       before.lane == after.lane;
  if (call_.inputs[tensor] == call_.outputs[tensor] && by_lane &&
      move.from.box(before) == move.to.box(after))
    return {};
  return fail(Code::invalid, "input and output of {} overlap; rank {} needs another place for it",
              move.name, rank);
}

void Resharding::list_slices(const SliceCopy& copy, const std::map<uint32_t, uint32_t>& members) {
  const Move& move = call_.plan->moves()[copy.move];
  const auto first_source = static_cast<uint32_t>(sources_.size());
  const auto source_count = static_cast<uint32_t>(copy.from.size());
  bool far = false;
  for (const uint32_t from : copy.from) {
    const uint32_t member = members.at(from);
    sources_.push_back(member);
    far = far || far_[member];
    if (from != copy.to) reads_from_[member] = true;
  }
  if (source_count > 1 && !trees_.contains(source_count))
    trees_.emplace(source_count, FoldTree::plain(source_count));
  // Whole elements of any type.
  const uint64_t far_bytes =
      std::max(kFarSliceBytes / std::max(source_count, 1U) / 64 * 64, kLeastFarSliceBytes);
  std::vector<BoxCopy> parts;
  for (uint32_t i = 0; i < move.types.size(); ++i) {
    const DType type = move.types[i];
    parts.clear();
    BoxCopy::make(copy.slice, copy.target, copy.source, dtype_bytes(type))
        .split(far ? far_bytes : kSliceBytes, parts);
    for (const BoxCopy& part : parts) {
      if (!far) bytes_ += part.bytes();
      (far ? far_slices_ : slices_)
          .push_back({.tensor = first_tensor_[copy.move] + i,
                      .first_source = first_source,
                      .source_count = source_count,
                      .type = type,
                      .op = move.from.op(),
                      .box = part});
    }
  }
}

void Resharding::do_slice(const Slice& slice, const Locate& locate, bool streaming) {
  std::byte* to = call_.outputs[slice.tensor];
  if (slice.source_count == 0) return zero_box(slice.box, to);
  if (slice.source_count == 1) {
    const std::byte* from = locate(sources_[slice.first_source], slice.tensor);
    if (from != to) copy_box(slice.box, to, from, streaming);
    return;
  }
  std::vector<const std::byte*> lanes;
  for (const uint32_t member : sources(slice)) lanes.push_back(locate(member, slice.tensor));
  fold_box(slice.box, tree(slice),
           {.type = slice.type,
            .op = slice.op,
            .divisor = slice.source_count,
            .sources = lanes,
            .targets = {&to, 1},
            .streaming = streaming});
}

bool Resharding::copy_some(const Locate& locate, bool streaming) {
  uint64_t some = 0;
  while (next_ < slices_.size() && some < kSliceBytes) {
    const Slice& slice = slices_[next_];
    const uint64_t bytes = slice.box.bytes();
    if (some != 0 && some + bytes > kSliceBytes) break;
    do_slice(slice, locate, streaming);
    some += bytes;
    ++next_;
  }
  bytes_done_ += some;
  return next_ == slices_.size();
}

}  // namespace tutti
