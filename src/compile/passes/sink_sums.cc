#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

class SumSinker {
 public:
  explicit SumSinker(const Graph& graph)
      : graph_(graph), uses_(use_counts(graph)), made_(graph.types.size()), rewrite_(graph) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (const ValueId result : graph.ops[i].results) made_[result] = i + 1;
  }

  Graph run() {
    find_sums();
    for (const Node& op : graph_.ops) {
      if (op.kind == OpKind::repeat) {
        write_repeat(op);
      } else if (op.kind == OpKind::add && sunk_.contains(op.results[0])) {
        rewrite_.replace(op.results[0], rewrite_(sunk_.at(op.results[0])));
      } else {
        rewrite_.copy(op, rewritten_body(op, sink_sums));
      }
    }
    return std::move(rewrite_).finish();
  }

 private:
  // Sums of a stacked result that only they read, and of what is there before the repeat.
  void find_sums() {
    for (const Node& op : graph_.ops) {
      if (op.kind != OpKind::add) continue;
      for (const size_t side : {1, 0}) {
        const ValueId stacked = op.operands[side];
        const ValueId other = op.operands[1 - side];
        if (made_[stacked] == 0 || uses_[stacked] != 1 || made_[other] >= made_[stacked]) continue;
        const Node& maker = graph_.ops[made_[stacked] - 1];
        if (maker.kind != OpKind::repeat || !is_stacked(maker, stacked)) continue;
        added_[stacked] = other;
        sunk_[op.results[0]] = stacked;
        break;
      }
    }
  }

  static bool is_stacked(const Node& repeat, ValueId result) {
    for (size_t i = repeat_shape(repeat).carried; i < repeat.results.size(); ++i)
      if (repeat.results[i] == result) return true;
    return false;
  }

  void write_repeat(const Node& op) {
    const RepeatShape shape = repeat_shape(op);
    Node wider = op;
    Graph body = sink_sums(*op.body);
    auto place = static_cast<ptrdiff_t>(shape.carried + shape.sliced);
    const auto before = place;
    for (size_t i = shape.carried; i < op.results.size(); ++i) {
      const auto added = added_.find(op.results[i]);
      if (added == added_.end()) continue;
      Type part = graph_.type(added->second);
      part.dims.erase(part.dims.begin());
      const ValueId old = body.add_input(fmt::format("sum{}", i), std::move(part));
      std::rotate(body.inputs.begin() + place, body.inputs.end() - 1, body.inputs.end());
      wider.operands.insert(wider.operands.begin() + place++, added->second);
      const ValueId value = body.outputs[i].value;
      auto sum = body.add({.kind = OpKind::add, .operands = {old, value}, .at = op.at});
      body.outputs[i].value = sum->front();
      // Right behind what it adds to, which may then finish with it.
      const auto maker = std::ranges::find_if(
          body.ops, [&](const Node& each) { return std::ranges::count(each.results, value) != 0; });
      if (maker != body.ops.end()) std::rotate(maker + 1, body.ops.end() - 1, body.ops.end());
    }
    wider.attributes.set("sliced", static_cast<int64_t>(shape.sliced) + (place - before));
    rewrite_.copy(wider, std::make_shared<const Graph>(std::move(body)));
  }

  const Graph& graph_;
  std::vector<uint32_t> uses_;
  std::vector<size_t> made_;          // by which operation, counted from 1
  std::map<ValueId, ValueId> added_;  // to a stacked result
  std::map<ValueId, ValueId> sunk_;   // of a sum: the stacked result that it becomes
  Rewrite rewrite_;
};

}  // namespace

Graph sink_sums(const Graph& graph) { return SumSinker(graph).run(); }

}  // namespace tutti
