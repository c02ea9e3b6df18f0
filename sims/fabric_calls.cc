#include "sims/fabric_calls.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/share.h"
#include "world/sim/random.h"

namespace tutti::sims {

namespace {

constexpr uint64_t kUneven = 4;     // shares differ by less than this
constexpr uint32_t kLanesEach = 5;  // of a member, at most
constexpr size_t kReductions = 64;  // kept: members are a few calls apart

// ---- Plain arithmetic ----

// To nearest, of two the even one.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

// Element i of what a lane brings along. Floats of many sizes, so that their order counts.
template <class T>
T value_of(const DrawnCall& drawn, uint64_t lane, uint64_t i) {
  const uint64_t bits = mix_bits(drawn.salt + lane * 0x9E3779B97F4A7C15 + i);
  if constexpr (std::is_floating_point_v<T>) {
    const auto whole = static_cast<T>(static_cast<int32_t>(bits & 0xFFFFF) - 0x80000);
    const T value = whole / static_cast<T>(uint32_t{1} << (bits >> 59));
    if constexpr (std::is_same_v<T, float>)
      if (drawn.type == DType::bf16) return from_bf16(to_bf16(value));
    return value;
  } else {
    return static_cast<T>(bits >> 20);
  }
}

template <class T>
T join(ReduceOp op, T a, T b) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // they wrap
  }
}

// The tree of fold_tree.h, as its definition has it.
template <class T>
T reduce(const DrawnCall& drawn, uint32_t first, uint32_t end, uint64_t i) {
  if (end - first == 1) return value_of<T>(drawn, first, i);
  const uint32_t left = std::bit_ceil(end - first) / 2;
  const T lower = reduce<T>(drawn, first, first + left, i);
  const T upper = reduce<T>(drawn, first + left, end, i);
  return join(drawn.op, lower, upper);
}

// ---- Elements as bytes ----

// Room for so many more elements, to be stored one after the other.
class Room {
 public:
  Room(std::vector<std::byte>& bytes, DType type, uint64_t elements) : type_(type) {
    const size_t before = bytes.size();
    bytes.resize(before + elements * dtype_bytes(type));
    next_ = bytes.data() + before;
  }
  template <class T>
  void store(T value) {
    if constexpr (std::is_same_v<T, float>)
      if (type_ == DType::bf16) return put(to_bf16(value));
    put(value);
  }

 private:
  template <class T>
  void put(T element) {
    std::memcpy(next_, &element, sizeof element);
    next_ += sizeof element;
  }
  DType type_;
  std::byte* next_;
};

// `work` is given a value of the type that is computed with.
template <class Work>
void with_type(DType type, Work work) {
  switch (type) {
    case DType::f64: return work(double{});
    case DType::i8: return work(int8_t{});
    case DType::u8: return work(uint8_t{});
    case DType::i32: return work(int32_t{});
    case DType::i64: return work(int64_t{});
    default: return work(float{});
  }
}

void append_values(std::vector<std::byte>& bytes, const DrawnCall& drawn, uint64_t lane,
                   uint64_t first, uint64_t elements) {
  Room room(bytes, drawn.type, elements);
  with_type(drawn.type, [&]<class T>(T) {
    for (uint64_t i = first; i < first + elements; ++i) room.store(value_of<T>(drawn, lane, i));
  });
}

void append_reduced(std::vector<std::byte>& bytes, const DrawnCall& drawn, LaneRange lanes,
                    Share share, bool whole) {
  const uint32_t all = drawn.lanes != 0 ? drawn.lanes : drawn.members;
  Room room(bytes, drawn.type, share.elements);
  with_type(drawn.type, [&]<class T>(T) {
    for (uint64_t i = share.first; i < share.first + share.elements; ++i) {
      T value = reduce<T>(drawn, lanes.first, lanes.first + lanes.count, i);
      if (whole && drawn.op == ReduceOp::mean) value = static_cast<T>(value / static_cast<T>(all));
      room.store(value);
    }
  });
}

bool spreads(CallKind kind) {
  return kind == CallKind::all_gather || kind == CallKind::gather || kind == CallKind::scatter ||
         kind == CallKind::all_to_all;
}

// A message of what one member of all_to_all has for another.
uint64_t pair_lane(const DrawnCall& drawn, uint32_t from, uint32_t to) {
  return uint64_t{from} * drawn.members + to;
}

}  // namespace

uint64_t DrawnCall::share(uint32_t member) const {
  if (kind == CallKind::reduce_scatter && !uneven) return elements / members;
  if (kind == CallKind::reduce_scatter) {
    const uint64_t each = elements / members;
    return member + 1 == members ? elements - each * (members - 1) : each;
  }
  return elements + (uneven ? member % kUneven : 0);
}

uint64_t DrawnCall::exchanged(uint32_t from, uint32_t to) const {
  return elements + (uneven ? (from + 2 * to) % kUneven : 0);
}

DrawnCall draw_call(uint64_t seed, uint32_t members, uint64_t most_elements) {
  constexpr CallKind kKinds[] = {
      CallKind::all_reduce, CallKind::all_reduce, CallKind::all_reduce, CallKind::reduce_scatter,
      CallKind::all_gather, CallKind::broadcast,  CallKind::all_to_all, CallKind::gather,
      CallKind::scatter,    CallKind::shift,      CallKind::barrier};
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i8,
                              DType::u8,  DType::i32, DType::i64};
  SimRandom random(mix_bits(seed));
  DrawnCall drawn{.kind = kKinds[random.below(std::size(kKinds))],
                  .type = kTypes[random.below(std::size(kTypes))],
                  .members = members,
                  .salt = random.next()};
  const bool floats = drawn.type == DType::f32 || drawn.type == DType::f64 || is_half(drawn.type);
  drawn.op = static_cast<ReduceOp>(random.below(4));
  if (drawn.op == ReduceOp::mean && !floats) drawn.op = ReduceOp::sum;
  uint64_t most = spreads(drawn.kind) ? most_elements / members : most_elements;
  if (random.below(6) != 0) most /= 20;  // large ones are rare, for they take long
  drawn.elements = random.below(most + 1);
  drawn.uneven = random.below(2) == 0;
  if (drawn.kind == CallKind::reduce_scatter && !drawn.uneven)
    drawn.elements -= drawn.elements % members;
  if (drawn.kind == CallKind::all_gather) ++drawn.elements;
  drawn.in_place = random.below(2) == 0;
  drawn.root = static_cast<uint32_t>(random.below(members));
  drawn.distance =
      static_cast<int32_t>(random.below(2 * members + 1)) - static_cast<int32_t>(members);
  const bool lanes = drawn.kind == CallKind::all_reduce && !is_half(drawn.type);
  const uint32_t most_lanes = std::min(members * kLanesEach, kMostLanes);
  if (lanes && random.below(3) == 0)
    drawn.lanes = members + static_cast<uint32_t>(random.below(most_lanes - members + 1));
  return drawn;
}

const std::vector<std::byte>& Reductions::of(const DrawnCall& drawn) {
  const auto [at, fresh] = kept_.try_emplace(drawn.salt);
  if (!fresh) return at->second;
  const uint32_t lanes = drawn.lanes != 0 ? drawn.lanes : drawn.members;
  append_reduced(at->second, drawn, {0, lanes}, {0, drawn.elements}, true);
  order_.push_back(drawn.salt);
  if (order_.size() > kReductions) {
    kept_.erase(order_.front());
    order_.erase(order_.begin());
  }
  return at->second;
}

uint64_t CheckedCall::output_elements() const {
  uint64_t sum = 0;
  switch (drawn_.kind) {
    case CallKind::barrier: return 0;
    case CallKind::reduce_scatter: return drawn_.share(index_);
    case CallKind::gather:
      if (index_ != drawn_.root) return 0;
      [[fallthrough]];
    case CallKind::all_gather:
      for (uint32_t from = 0; from < drawn_.members; ++from) sum += drawn_.share(from);
      return sum;
    case CallKind::all_to_all:
      for (uint32_t from = 0; from < drawn_.members; ++from) sum += drawn_.exchanged(from, index_);
      return sum;
    default: return drawn_.elements;
  }
}

CheckedCall::CheckedCall(const DrawnCall& drawn, uint32_t index) : drawn_(drawn), index_(index) {
  switch (drawn_.kind) {
    case CallKind::barrier: break;
    case CallKind::all_gather:
    case CallKind::gather: append_values(input_, drawn_, index, 0, drawn_.share(index)); break;
    case CallKind::scatter:
      if (index == drawn_.root)
        append_values(input_, drawn_, index, 0, drawn_.elements * drawn_.members);
      break;
    case CallKind::all_to_all:
      for (uint32_t to = 0; to < drawn_.members; ++to)
        append_values(input_, drawn_, pair_lane(drawn_, index, to), 0, drawn_.exchanged(index, to));
      break;
    default:
      if (drawn_.lanes == 0) append_values(input_, drawn_, index, 0, drawn_.elements);
  }
  output_.assign(output_elements() * dtype_bytes(drawn_.type), std::byte{0xA5});
}

Call CheckedCall::call(std::string site) {
  Call call{.kind = drawn_.kind,
            .type = drawn_.type,
            .op = drawn_.op,
            .elements = drawn_.elements,
            .input = input_.data(),
            .output = output_.data(),
            .root = drawn_.root,
            .distance = drawn_.distance,
            .site = std::move(site)};
  const bool same_size = drawn_.kind == CallKind::all_reduce || drawn_.kind == CallKind::broadcast;
  if (same_size && drawn_.in_place && drawn_.lanes == 0) {
    output_ = input_;
    call.input = call.output = output_.data();
  }
  if (drawn_.lanes != 0) add_lanes(call);
  if (drawn_.kind == CallKind::all_gather || drawn_.kind == CallKind::gather) {
    call.elements = drawn_.share(index_);
    call.output_elements = output_elements();
  }
  for (uint32_t other = 0; other < drawn_.members && drawn_.uneven; ++other) {
    if (drawn_.kind == CallKind::reduce_scatter) call.counts.push_back(drawn_.share(other));
    if (drawn_.kind != CallKind::all_to_all) continue;
    call.counts.push_back(drawn_.exchanged(index_, other));
    call.incoming.push_back(drawn_.exchanged(other, index_));
  }
  return call;
}

void CheckedCall::add_lanes(Call& call) {
  call.lanes = drawn_.lanes;
  const LaneRange mine = share_of_lanes(drawn_.lanes, drawn_.members, index_);
  for (const LaneRange node : whole_nodes(mine, drawn_.lanes)) {
    auto& part = parts_.emplace_back();
    append_reduced(part, drawn_, node, {0, drawn_.elements}, false);
    call.parts.push_back({node, part.data()});
  }
}

std::vector<std::byte> CheckedCall::expected(Reductions& reductions) const {
  std::vector<std::byte> bytes;
  switch (drawn_.kind) {
    case CallKind::all_reduce: return reductions.of(drawn_);
    case CallKind::reduce_scatter: {
      uint64_t first = 0;
      for (uint32_t other = 0; other < index_; ++other) first += drawn_.share(other);
      append_reduced(bytes, drawn_, {0, drawn_.members}, {first, drawn_.share(index_)}, true);
      break;
    }
    case CallKind::gather:
      if (index_ != drawn_.root) break;
      [[fallthrough]];
    case CallKind::all_gather:
      for (uint32_t from = 0; from < drawn_.members; ++from)
        append_values(bytes, drawn_, from, 0, drawn_.share(from));
      break;
    case CallKind::broadcast: append_values(bytes, drawn_, drawn_.root, 0, drawn_.elements); break;
    case CallKind::scatter:
      append_values(bytes, drawn_, drawn_.root, index_ * drawn_.elements, drawn_.elements);
      break;
    case CallKind::shift: {
      const auto size = static_cast<int64_t>(drawn_.members);
      const int64_t from = ((index_ - int64_t{drawn_.distance}) % size + size) % size;
      append_values(bytes, drawn_, static_cast<uint64_t>(from), 0, drawn_.elements);
      break;
    }
    case CallKind::all_to_all:
      for (uint32_t from = 0; from < drawn_.members; ++from)
        append_values(bytes, drawn_, pair_lane(drawn_, from, index_), 0,
                      drawn_.exchanged(from, index_));
      break;
    default: break;
  }
  return bytes;
}

std::string CheckedCall::wrong(Reductions& reductions) const {
  const std::vector<std::byte> right = expected(reductions);
  if (output_ == right) return {};
  const auto [at, other] = std::ranges::mismatch(output_, right);
  return fmt::format(
      "{} of {} {} by {} members: element {} of member {} is wrong", call_kind_name(drawn_.kind),
      drawn_.elements, dtype_name(drawn_.type), drawn_.members,
      static_cast<uint64_t>(at - output_.begin()) / dtype_bytes(drawn_.type), index_);
}

}  // namespace tutti::sims
