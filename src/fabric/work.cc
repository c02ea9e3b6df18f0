// What a member does with the memory of the others, once they have arrived.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "fabric/fold.h"
#include "fabric/group.h"
#include "fabric/share.h"

namespace tutti {

namespace {

// Of a reduced share, handed to an update while it is in the first cache.
constexpr uint64_t kUpdateBytes = 16 << 10;

}  // namespace

const BoardCall& Operation::call_of(uint32_t member) const {
  return group_.members_[member].board->calls[tick_ & 1];
}

const std::byte* Operation::input_of(uint32_t member) const {
  const uint64_t input = call_of(member).input;
  if (input == kInSmall) return group_.members_[member].board->small[tick_ & 1];
  return group_.fabric_.heap().at(input);
}

bool Operation::streams(uint64_t bytes) const {
  return bytes >= (trial_ ? trial_->stream_bytes : group_.tuning_.stream_bytes);
}

// What a member has joined beforehand.
std::vector<const std::byte*> Operation::parts_of(uint32_t member,
                                                  std::vector<LaneRange>& nodes) const {
  std::vector<const std::byte*> sources;
  const std::byte* table = group_.members_[member].board->small[tick_ & 1];
  for (uint8_t part = 0; part < call_of(member).parts; ++part) {
    const auto word = [&](int i) {
      return load_le<uint64_t>(table + (static_cast<size_t>(part) * 3 + i) * 8);
    };
    nodes.push_back({static_cast<uint32_t>(word(0)), static_cast<uint32_t>(word(1))});
    sources.push_back(group_.fabric_.heap().at(word(2)));
  }
  return sources;
}

// In the order of the members, which is the order of their lanes.
std::vector<const std::byte*> Operation::reduction_sources(std::vector<LaneRange>& nodes) const {
  std::vector<const std::byte*> sources;
  for (uint32_t member = 0; member < group_.size(); ++member) {
    if (call_.lanes == 0) {
      sources.push_back(input_of(member));
    } else {
      const auto parts = parts_of(member, nodes);
      sources.insert(sources.end(), parts.begin(), parts.end());
    }
  }
  return sources;
}

Result<void> Operation::reduce() {
  const uint64_t element = dtype_bytes(call_.type);
  const uint32_t size = group_.size();
  std::vector<LaneRange> nodes;
  auto sources = reduction_sources(nodes);
  std::optional<FoldTree> made;
  if (call_.lanes != 0) {
    TRY(made, FoldTree::over(call_.lanes, nodes));
  }
  const FoldTree& tree = made ? *made : group_.plain_;

  Share share{0, call_.elements};
  std::vector<std::byte*> targets;
  if (call_.kind == CallKind::reduce_scatter) {
    share = scattered_share(call_.elements, call_.counts, size, group_.index());
    targets.push_back(call_.output);
  } else if (one_tick_) {
    targets.push_back(call_.output);
  } else {
    share = even_share(call_.elements, element, size, group_.index());
    const uint64_t skipped = share.first * element;
    if (call_.shared_output) {
      targets.push_back(group_.fabric_.heap().at(output_) + skipped);
    } else {
      for (uint32_t member = 0; member < size; ++member)
        targets.push_back(group_.fabric_.heap().at(call_of(member).output) + skipped);
    }
  }
  for (const std::byte*& source : sources) source += share.first * element;

  FoldWork work{.type = call_.type,
                .op = call_.op,
                .divisor = call_.lanes != 0 ? call_.lanes : size,
                .sources = sources,
                .targets = targets,
                .elements = share.elements,
                // In place the lines of the targets were just read.
                .streaming = targets.size() == 1 &&
                             targets[0] != sources[group_.index() % sources.size()] &&
                             streams(call_.elements * element * (size + 1))};
  if (!call_.update) {
    fold(tree, work);
    return {};
  }
  work.streaming = false;
  const uint64_t block = kUpdateBytes / element;
  for (uint64_t done = 0; done < share.elements; done += block) {
    work.elements = std::min(block, share.elements - done);
    fold(tree, work);
    call_.update(done, targets[0], work.elements);
    for (const std::byte*& source : sources) source += work.elements * element;
    targets[0] += work.elements * element;
  }
  return {};
}

void Operation::copy_from(uint32_t member, uint64_t source_element, uint64_t target_element,
                          uint64_t elements) {
  const uint64_t element = dtype_bytes(call_.type);
  std::byte* to = call_.output + target_element * element;
  const std::byte* from = input_of(member) + source_element * element;
  if (to == from) return;
  copy_bytes(to, from, elements * element, streams(2 * elements * element * group_.size()));
}

// One share after the other. With a shared output every member puts its own there.
Result<void> Operation::gather_all() {
  TRY_DO(check_gathered());
  uint64_t first = 0;
  for (uint32_t member = 0; member < group_.size(); ++member) {
    const uint64_t elements = call_of(member).elements;
    if (!call_.shared_output || member == group_.index()) copy_from(member, 0, first, elements);
    first += elements;
  }
  return {};
}

// How much the others bring is known only now. All find the same.
Result<void> Operation::check_gathered() const {
  const uint64_t element = dtype_bytes(call_.type);
  uint64_t all = 0;
  uint64_t before = 0;
  for (uint32_t member = 0; member < group_.size(); ++member) {
    if (member < group_.index()) before += call_of(member).elements;
    all += call_of(member).elements;
  }
  for (uint32_t member = 0; member < group_.size(); ++member) {
    const bool written = call_.kind == CallKind::all_gather || member == call_.root;
    if (written && call_of(member).room < all)
      return fail(Code::invalid, "{} gives {} elements, and the output of rank {} has room for {}",
                  call_kind_name(call_.kind), all, group_.rank_of(member), call_of(member).room);
  }
  // Others read our share where it lies.
  const std::byte* share = call_.output + before * element;
  const bool inside = input_ != kInSmall && call_.output != nullptr &&
                      call_.input >= call_.output && call_.input < call_.output + all * element;
  if (inside && call_.input != share && input_of(group_.index()) == call_.input)
    return fail(Code::invalid, "in place the shares of {} lie one after the other",
                call_kind_name(call_.kind));
  return {};
}

uint64_t Operation::counts_of(uint32_t member, uint32_t of) const {
  if (call_.counts.empty()) return call_.elements;
  return load_le<uint64_t>(group_.members_[member].board->small[tick_ & 1] + uint64_t{of} * 8);
}

// Where a tensor that a member reshards lies. Members share our heap: of one that does not, its
// bytes would be got here.
const std::byte* Operation::tensor_of(uint32_t member, uint32_t tensor) const {
  if (member == group_.index()) return call_.inputs[tensor];
  const Heap& heap = group_.fabric_.heap();
  return heap.at(load_le<uint64_t>(heap.at(call_of(member).input) + uint64_t{tensor} * 8));
}

bool Operation::copy_slices() {
  return resharding_->copy_some(
      [this](uint32_t member, uint32_t tensor) { return tensor_of(member, tensor); },
      streams(2 * resharding_->bytes() * group_.size()));
}

Result<void> Operation::exchange_all() {
  uint64_t target = 0;
  for (uint32_t member = 0; member < group_.size(); ++member) {
    const uint64_t expected = call_.incoming.empty() ? call_.elements : call_.incoming[member];
    uint64_t source = 0;
    for (uint32_t before = 0; before < group_.index(); ++before)
      source += counts_of(member, before);
    const uint64_t sent = counts_of(member, group_.index());
    if (sent != expected)
      return fail(Code::invalid,
                  "rank {} sends {} elements to rank {}, which expects {}, in all_to_all at {}",
                  group_.rank_of(member), sent, group_.rank_of(group_.index()), expected,
                  call_.site);
    copy_from(member, source, target, sent);
    target += sent;
  }
  return {};
}

}  // namespace tutti
