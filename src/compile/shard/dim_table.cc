#include "compile/shard/dim_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compile/shard/reshape_blocks.h"

namespace tutti {

void assign_axes(std::span<ShardSlot*> slots, Names taken, const ShardMesh& mesh) {
  std::ranges::stable_sort(slots, {}, &ShardSlot::order);
  for (ShardSlot* slot : slots) {
    int64_t ranks = 1;
    for (const std::string& axis : slot->wanted) {
      const int64_t more = ranks * mesh.size_of(axis);
      if (more == ranks || contains(taken, axis)) continue;
      if (std::ranges::any_of(slot->dividing, [&](int64_t size) { return size % more != 0; })) {
        slot->undivided = axis;
        break;
      }
      ranks = more;
      slot->axes.push_back(axis);
      taken.push_back(axis);
    }
  }
}

// Finds the entries of a graph.
class DimDerivation {
 public:
  using Key = DimTable::Key;
  using Entry = DimTable::Entry;

  DimDerivation(DimTable& table, const Graph& graph) : table_(table) {
    collect(graph);
    for (const Key& key : dims_) {
      const auto rule = std::ranges::find(table.rules_, key.first, &ShardRule::dim);
      if (rule == table.rules_.end() || rule->axes.empty()) continue;
      table.entries_[key] = {.axes = rule->axes,
                             .order = static_cast<size_t>(rule - table.rules_.begin())};
    }
  }

  void run() {
    // Each round may give what the next one goes on from; chains are as long as there are names.
    for (size_t round = 0; round < dims_.size(); ++round) {
      const auto before = table_.entries_;
      for (const auto& [from, to] : reshapes_) {
        for (const ReshapeBlock& block : reshape_blocks(from, to)) {
          if (block.from.size() == 1 && block.to.size() > 1)
            derive_whole(from, block.from[0], to, block.to);
          if (block.to.size() == 1 && block.from.size() > 1)
            derive_whole(to, block.to[0], from, block.from);
        }
      }
      for (const auto& [whole, parts] : cuts_) derive_cut(whole, parts);
      if (table_.entries_ == before) return;
    }
  }

 private:
  using Piece = std::pair<int64_t, int64_t>;  // start and size

  void collect(const Graph& graph) {
    for (const Type& type : graph.types)
      for (const Dim& dim : type.dims) dims_.insert({dim.name, dim.size});
    for (const Node& op : graph.ops) {
      if (op.body != nullptr) collect(*op.body);
      if (op.kind == OpKind::reshape)
        reshapes_.emplace_back(graph.type(op.operands[0]), graph.type(op.results[0]));
      const std::string dim = op.attributes.get<std::string>("dim");
      if (op.kind == OpKind::slice)
        cuts_[{dim, graph.type(op.operands[0]).size_of(dim)}].insert(
            {op.attributes.get<int64_t>("start"), op.attributes.get<int64_t>("size")});
      if (op.kind == OpKind::concat) {
        int64_t start = 0;
        for (const ValueId part : op.operands) {
          const int64_t size = graph.type(part).size_of(dim);
          cuts_[{dim, graph.type(op.results[0]).size_of(dim)}].insert({start, size});
          start += size;
        }
      }
    }
  }

  bool has_rule(const std::string& name) const {
    return std::ranges::find(table_.rules_, name, &ShardRule::dim) != table_.rules_.end();
  }

  // A dimension that is others, side by side.
  void derive_whole(const Type& type, size_t place, const Type& other,
                    const std::vector<size_t>& parts) {
    const Dim& whole = type.dims[place];
    int64_t outer = 1;
    for (const size_t part : parts) {
      const Dim& dim = other.dims[part];
      const Entry* entry = table_.find(dim);
      const int64_t ranks = entry == nullptr ? 1 : table_.mesh_.product(entry->axes);
      if (ranks > 1 && entry->segments.empty() && dim.size % ranks == 0) {
        Entry made{.axes = entry->axes, .segments = {}, .order = entry->order};
        if (outer > 1) made.segments.assign(static_cast<size_t>(outer), whole.size / outer);
        add(whole, std::move(made));
        return;
      }
      outer *= dim.size;
    }
  }

  // A dimension of which slices are taken that cover it.
  void derive_cut(const Key& whole, const std::set<Piece>& pieces) {
    Entry made;
    int64_t end = 0;
    for (const auto& [start, size] : pieces) {
      if (start != end || size == whole.second) return;
      const Entry* entry = table_.find({whole.first, size});
      if (entry == nullptr || (!made.segments.empty() && entry->axes != made.axes)) return;
      if (!entry->segments.empty() || size % table_.mesh_.product(entry->axes) != 0) return;
      made.axes = entry->axes;
      made.order = entry->order;
      made.segments.push_back(size);
      end += size;
    }
    if (end == whole.second) add({whole.first, whole.second}, std::move(made));
  }

  // What a rule says stays; how its pieces lie is left to what follows from the graph.
  void add(const Dim& dim, Entry made) {
    const Entry* known = table_.find(dim);
    if (known == nullptr && has_rule(dim.name)) return;
    if (known != nullptr && (known->axes != made.axes || !known->segments.empty())) return;
    if (known != nullptr) made.order = known->order;
    table_.entries_[{dim.name, dim.size}] = std::move(made);
  }

  DimTable& table_;
  std::set<Key> dims_;
  std::vector<std::pair<Type, Type>> reshapes_;
  std::map<Key, std::set<Piece>> cuts_;
};

DimTable::DimTable(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules)
    : mesh_(mesh), rules_(rules) {
  DimDerivation(*this, graph).run();
}

const DimTable::Entry* DimTable::find(const Dim& dim) const {
  const auto found = entries_.find({dim.name, dim.size});
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<ShardSlot> DimTable::slots_of(const Type& type) const {
  std::vector<ShardSlot> slots;
  for (const Dim& dim : type.dims) {
    ShardSlot slot{.name = dim.name, .size = dim.size, .order = kLast};
    if (const Entry* entry = find(dim)) {
      slot.order = entry->order;
      slot.wanted = entry->axes;
      slot.dividing = entry->segments.empty() ? std::vector{dim.size} : entry->segments;
    }
    slots.push_back(std::move(slot));
  }
  std::vector<ShardSlot*> order;
  for (ShardSlot& slot : slots) order.push_back(&slot);
  assign_axes(order, {}, mesh_);
  return slots;
}

TensorSharding DimTable::of(const Type& type) const {
  TensorSharding sharding;
  for (const ShardSlot& slot : slots_of(type)) {
    DimSharding dim{.axes = slot.axes};
    if (!slot.axes.empty()) dim.segments = find({slot.name, slot.size})->segments;
    sharding.dims.push_back(std::move(dim));
  }
  return sharding;
}

Result<TensorSharding> DimTable::of_input(std::string_view name, const Type& type) const {
  for (const ShardSlot& slot : slots_of(type))
    if (!slot.undivided.empty() && slot.size != 1)
      return fail(Code::invalid,
                  "{}={} of {} does not divide by the {} ranks of {}; make it a multiple, choose "
                  "another mesh, or leave it whole with the rule {}=",
                  slot.name, slot.size, name, mesh_.size_of(slot.undivided), slot.undivided,
                  slot.name);
  return of(type);
}

}  // namespace tutti
