#include "compile/shard/op_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "compile/shard/reshape_blocks.h"

namespace tutti {
namespace {

// What a kernel needs whole, by name.
Names whole_names(const Node& op) {
  const auto name = [&](std::string_view key) { return op.attributes.get<std::string>(key); };
  switch (op.kind) {
    case OpKind::argmax:
    case OpKind::cumulative_sum:
    case OpKind::update:
    case OpKind::softmax:
    case OpKind::layer_norm:
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm:
    case OpKind::rms_norm_grad: return {name("dim")};
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad: return {name("over"), name("vocab")};
    case OpKind::attention:
    case OpKind::attention_grad: {
      Names whole = {name("head"), name("key")};
      // A query looks back from its place, which a part of them would have to know.
      if (op.attributes.get<bool>("causal")) whole.push_back(name("query"));
      return whole;
    }
    default: return {};
  }
}

class SpaceBuilder {
 public:
  SpaceBuilder(const Graph& graph, const Node& op, const DimTable& table, const ShardMesh& mesh,
               std::span<const TensorSharding> lie)
      : graph_(graph), op_(op), table_(table), mesh_(mesh), lie_(lie) {}

  Result<OpSpace> build() {
    switch (op_.kind) {
      case OpKind::reshape: TRY_DO(add_blocks()); break;
      case OpKind::slice:
        add_by_name({dim_});
        add_window(operand(0), true, 0, op_.attributes.get<int64_t>("start"), result(0), false, 0);
        break;
      case OpKind::pad:
        add_by_name({dim_});
        add_window(result(0), false, 0, op_.attributes.get<int64_t>("low"), operand(0), true, 0);
        break;
      case OpKind::concat:
        add_by_name({dim_});
        add_concat();
        break;
      case OpKind::gather: add_gather(); break;
      case OpKind::scatter_add: add_scatter(); break;
      default: add_by_name(whole_names(op_)); break;
    }
    return std::move(space_);
  }

 private:
  const Type& operand(size_t i) const { return graph_.type(op_.operands[i]); }
  const Type& result(size_t i) const { return graph_.type(op_.results[i]); }

  // Fills in what the slot wants, in each of its places alike.
  void want(SpaceSlot& slot) {
    std::vector<int64_t> segments;
    slot.order = DimTable::kLast;
    if (const auto* entry = table_.find({slot.name, slot.size})) {
      slot.order = entry->order;
      slot.wanted = entry->axes;
      segments = entry->segments;
    } else {
      for (const SlotPlace& place : slot.operands) {
        const DimSharding& lies = lie_[place.tensor].dims[place.dim];
        if (lies.axes.empty()) continue;
        slot.wanted = lies.axes;
        segments = lies.segments;
        break;
      }
    }
    slot.dividing = segments.empty() ? std::vector{slot.size} : segments;
    for (SlotPlace& place : slot.operands) place.segments = segments;
    for (SlotPlace& place : slot.results) place.segments = segments;
  }

  void add_by_name(const Names& left_out) {
    const auto add = [&](const Type& type, size_t tensor, bool is_operand) {
      for (size_t i = 0; i < type.dims.size(); ++i) {
        const Dim& dim = type.dims[i];
        if (contains(left_out, dim.name)) continue;
        auto slot = std::ranges::find(space_.slots, dim.name, &SpaceSlot::name);
        if (slot == space_.slots.end()) {
          space_.slots.push_back({{.name = dim.name, .size = dim.size}});
          slot = space_.slots.end() - 1;
        }
        (is_operand ? slot->operands : slot->results).push_back({tensor, i});
      }
    };
    for (size_t i = 0; i < op_.operands.size(); ++i) add(operand(i), i, true);
    for (size_t i = 0; i < op_.results.size(); ++i) add(result(i), i, false);
    for (SpaceSlot& slot : space_.slots) want(slot);
  }

  // The segments of which a window of a dimension is made, if its ends are ends of segments.
  static std::optional<std::vector<int64_t>> segments_within(const std::vector<int64_t>& segments,
                                                             int64_t start, int64_t size) {
    std::vector<int64_t> within;
    int64_t at = 0;
    int64_t covered = 0;
    for (const int64_t segment : segments) {
      if (at >= start && at + segment <= start + size) {
        within.push_back(segment);
        covered += segment;
      }
      at += segment;
    }
    if (covered != size) return std::nullopt;
    if (within.size() == 1) within.clear();
    return within;
  }

  // A dimension of `wide`, of which `narrow` has a window: a slice, or backwards a pad.
  void add_window(const Type& wide, bool wide_is_operand, size_t wide_index, int64_t start,
                  const Type& narrow, bool narrow_is_operand, size_t narrow_index) {
    const size_t place = *wide.find(dim_);
    SpaceSlot slot{{.name = dim_, .size = wide.dims[place].size}};
    (wide_is_operand ? slot.operands : slot.results).push_back({wide_index, place});
    want(slot);
    const int64_t size = narrow.size_of(dim_);
    const auto& segments = (wide_is_operand ? slot.operands : slot.results)[0].segments;
    const auto within =
        segments_within(segments.empty() ? std::vector{slot.size} : segments, start, size);
    if (!within) return;
    (narrow_is_operand ? slot.operands : slot.results)
        .push_back({narrow_index, *narrow.find(dim_), *within});
    space_.slots.push_back(std::move(slot));
  }

  void add_concat() {
    const size_t place = *result(0).find(dim_);
    SpaceSlot slot{{.name = dim_, .size = result(0).dims[place].size}};
    slot.results.push_back({0, place});
    want(slot);
    const auto& segments = slot.results[0].segments;
    int64_t start = 0;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const int64_t size = operand(i).size_of(dim_);
      const auto within =
          segments_within(segments.empty() ? std::vector{slot.size} : segments, start, size);
      if (!within) return;
      slot.operands.push_back({i, place, *within});
      start += size;
    }
    space_.slots.push_back(std::move(slot));
  }

  void add(SpaceSlot slot) {
    want(slot);
    space_.slots.push_back(std::move(slot));
  }

  void add_gather() {
    const Dims& indices = operand(1).dims;
    for (size_t i = 0; i < indices.size(); ++i)
      add({{.name = indices[i].name, .size = indices[i].size}, {{1, i}}, {{0, i}}});
    size_t at = indices.size();
    for (size_t i = 0; i < operand(0).dims.size(); ++i) {
      const Dim& dim = operand(0).dims[i];
      if (dim.name == dim_)
        add_looked_up({{.name = dim.name, .size = dim.size}, {{0, i}}, {}});
      else
        add({{.name = dim.name, .size = dim.size}, {{0, i}}, {{0, at++}}});
    }
  }

  void add_scatter() {
    const size_t indices = operand(0).dims.size();
    for (size_t i = 0; i < operand(1).dims.size(); ++i) {
      const Dim& dim = operand(1).dims[i];
      if (i < indices)
        add({{.name = dim.name, .size = dim.size}, {{0, i}, {1, i}}, {}});
      else
        add({{.name = dim.name, .size = dim.size}, {{1, i}}, {{0, i - indices + 1}}});
    }
    const Dim& dim = result(0).dims[0];
    add_looked_up({{.name = dim.name, .size = dim.size}, {}, {{0, 0}}});
  }

  // An index says where a row is as if the table were one piece.
  void add_looked_up(SpaceSlot slot) {
    want(slot);
    slot.looked_up = true;
    if (slot.dividing.size() == 1) space_.slots.push_back(std::move(slot));
  }

  // A way to split a block, that a rule wants for one of its dimensions, or that it lies in.
  struct BlockWish {
    size_t order;
    Names axes;
    int64_t outer;
    std::vector<int64_t> segments;  // not all of one size: for a block that is only renamed
  };

  Result<void> add_blocks() {
    for (const ReshapeBlock& block : reshape_blocks(operand(0), result(0))) {
      std::vector<BlockWish> wishes;
      std::string undivided;
      collect_wishes(result(0), block.to, wishes, undivided);
      collect_wishes(operand(0), block.from, wishes, undivided);
      collect_lying(block, wishes);
      std::ranges::stable_sort(wishes, {}, &BlockWish::order);
      const bool found = std::ranges::any_of(
          wishes, [&](const BlockWish& wish) { return add_block(block, wish); });
      if (!found && !undivided.empty() && block.from.size() + block.to.size() > 2)
        return fail(Code::invalid, "{} is split as {}: {}", operand(0).text(), result(0).text(),
                    undivided);
    }
    return {};
  }

  void collect_wishes(const Type& type, const std::vector<size_t>& side,
                      std::vector<BlockWish>& wishes, std::string& undivided) const {
    int64_t outer = 1;
    for (const size_t place : side) {
      const Dim& dim = type.dims[place];
      if (const auto* entry = table_.find(dim)) {
        const int64_t ranks = mesh_.product(entry->axes);
        if (ranks > 1 && divides({{}, entry->segments}, dim.size, ranks))
          add_wish(entry->order, entry->axes, outer, entry->segments, wishes);
        else if (ranks > 1)
          undivided = fmt::format(
              "{}={} does not divide by the {} ranks of {}; make it a multiple, choose another "
              "mesh, or leave it whole with the rule {}=",
              dim.name, dim.size, ranks, fmt::join(entry->axes, "/"), dim.name);
      }
      outer *= dim.size;
    }
  }

  static void add_wish(size_t order, const Names& axes, int64_t outer,
                       const std::vector<int64_t>& segments, std::vector<BlockWish>& wishes) {
    const bool equal =
        std::ranges::all_of(segments, [&](int64_t size) { return size == segments.front(); });
    const auto count = std::max<int64_t>(std::ssize(segments), 1);
    wishes.push_back(
        {order, axes, equal ? outer * count : 0, equal ? std::vector<int64_t>{} : segments});
  }

  void collect_lying(const ReshapeBlock& block, std::vector<BlockWish>& wishes) const {
    int64_t outer = 1;
    for (const size_t place : block.from) {
      const DimSharding& lies = lie_[0].dims[place];
      if (!lies.axes.empty()) add_wish(DimTable::kLast, lies.axes, outer, lies.segments, wishes);
      outer *= operand(0).dims[place].size;
    }
  }

  bool add_block(const ReshapeBlock& block, const BlockWish& wish) {
    SpaceSlot slot{{.order = wish.order, .wanted = wish.axes}};
    if (!wish.segments.empty()) {
      if (block.from.size() + block.to.size() > 2) return false;
      slot.operands.push_back({0, block.from[0], wish.segments});
      slot.results.push_back({0, block.to[0], wish.segments});
      slot.dividing = wish.segments;
    } else {
      const int64_t ranks = mesh_.product(wish.axes);
      const auto before = split_block(operand(0), block.from, wish.outer, ranks);
      const auto after = split_block(result(0), block.to, wish.outer, ranks);
      if (!before || !after) return false;
      slot.operands.push_back({0, before->place, equal_parts(operand(0), *before)});
      slot.results.push_back({0, after->place, equal_parts(result(0), *after)});
      slot.dividing = {operand(0).dims[before->place].size / before->segments,
                       result(0).dims[after->place].size / after->segments};
    }
    slot.name = result(0).dims[slot.results[0].dim].name;
    slot.size = result(0).dims[slot.results[0].dim].size;
    space_.slots.push_back(std::move(slot));
    return true;
  }

  static std::vector<int64_t> equal_parts(const Type& type, const BlockSplit& split) {
    if (split.segments == 1) return {};
    return std::vector<int64_t>(static_cast<size_t>(split.segments),
                                type.dims[split.place].size / split.segments);
  }

  const Graph& graph_;
  const Node& op_;
  const DimTable& table_;
  const ShardMesh& mesh_;
  std::span<const TensorSharding> lie_;
  std::string dim_ = op_.attributes.get<std::string>("dim");
  OpSpace space_;
};

TensorSharding sharding_at(const std::vector<SpaceSlot>& slots,
                           std::vector<SlotPlace> SpaceSlot::* places, size_t index,
                           const Type& type) {
  TensorSharding sharding = whole_sharding(type);
  for (const SpaceSlot& slot : slots) {
    if (slot.axes.empty()) continue;
    for (const SlotPlace& place : slot.*places)
      if (place.tensor == index) sharding.dims[place.dim] = {slot.axes, place.segments};
  }
  return sharding;
}

}  // namespace

void OpSpace::assign(const Names& taken, const ShardMesh& mesh) {
  std::vector<ShardSlot*> order;
  for (SpaceSlot& slot : slots) order.push_back(&slot);
  assign_axes(order, taken, mesh);
}

bool OpSpace::has_taken(std::string_view axis) const {
  return std::ranges::any_of(slots,
                             [&](const SpaceSlot& slot) { return contains(slot.axes, axis); });
}

const SpaceSlot* OpSpace::looked_up() const {
  const auto found = std::ranges::find_if(
      slots, [](const SpaceSlot& slot) { return slot.looked_up && !slot.axes.empty(); });
  return found == slots.end() ? nullptr : &*found;
}

TensorSharding OpSpace::operand(size_t i, const Type& type) const {
  return sharding_at(slots, &SpaceSlot::operands, i, type);
}

TensorSharding OpSpace::result(size_t i, const Type& type) const {
  TensorSharding sharding = sharding_at(slots, &SpaceSlot::results, i, type);
  for (const SpaceSlot& slot : slots)
    for (const std::string& axis : slot.axes)
      if (!sharding.has_axis(axis)) sharding.partial = with(std::move(sharding.partial), axis);
  return sharding;
}

Result<OpSpace> op_space(const Graph& graph, const Node& op, const DimTable& table,
                         const ShardMesh& mesh, std::span<const TensorSharding> lie) {
  return SpaceBuilder(graph, op, table, mesh, lie).build();
}

LinearOperands linear_operands(const Node& op) {
  switch (op.kind) {
    case OpKind::add:
    case OpKind::sub: return {{0, 1}, true};
    case OpKind::select: return {{1, 2}, true};
    case OpKind::concat: {
      LinearOperands all{{}, true};
      for (size_t i = 0; i < op.operands.size(); ++i) all.which.push_back(i);
      return all;
    }
    case OpKind::mul: return {{0, 1}};
    case OpKind::neg:
    case OpKind::div:
    case OpKind::reshape:
    case OpKind::transpose:
    case OpKind::broadcast:
    case OpKind::slice:
    case OpKind::pad:
    case OpKind::reduce_sum:
    case OpKind::cumulative_sum: return {{0}};
    case OpKind::scatter_add: return {{1}};
    default: return {};
  }
}

}  // namespace tutti
