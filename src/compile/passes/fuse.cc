#include <algorithm>
#include <map>
#include <set>

#include "base/assert.h"
#include "compile/loop/loop_kernel.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

// More operations in one kernel than this take long to compile and spill registers.
constexpr size_t kMostOps = 64;

bool goes_into_loops(const Node& op) {
  switch (op_class(op.kind)) {
    case OpClass::source:
    case OpClass::unary:
    case OpClass::binary:
    case OpClass::ternary: return true;
    case OpClass::shape: return op.kind == OpKind::broadcast || op.kind == OpKind::transpose;
    case OpClass::reduce: return op.kind == OpKind::reduce_sum || op.kind == OpKind::reduce_max;
    default: return false;
  }
}

// Cheaper to make again than to hand over.
bool is_free(const Node& op) { return op.kind == OpKind::constant || op.kind == OpKind::iota; }

class Fusion {
 public:
  explicit Fusion(const Graph& graph)
      : graph_(graph), makers_(graph.types.size(), kNone), group_(graph.ops.size(), kNone) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (const ValueId result : graph.ops[i].results) makers_[result] = i;
  }

  Graph run() {
    find_users();
    for (size_t i = 0; i < graph_.ops.size(); ++i) place(i);
    drop_useless();
    return write();
  }

 private:
  using Members = std::set<size_t>;

  void find_users() {
    used_.resize(graph_.types.size());
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      for (const ValueId operand : graph_.ops[i].operands) used_[operand].push_back(i);
    for (const Output& output : graph_.outputs) returned_.insert(output.value);
  }

  // Puts an operation into the group of one of its operands' makers, or one of its own.
  void place(size_t i) {
    const Node& op = graph_.ops[i];
    if (!goes_into_loops(op) || is_free(op)) return;
    for (const ValueId operand : op.operands) {
      const size_t maker = makers_[operand];
      if (maker == kNone || group_[maker] == kNone) continue;
      if (join(i, group_[maker])) {
        // What another operand's group makes may come along as well.
        for (const ValueId other : op.operands) {
          const size_t its = makers_[other];
          if (its != kNone && group_[its] != kNone && group_[its] != group_[i])
            merge(group_[its], group_[i]);
        }
        return;
      }
    }
    Members alone{i};
    if (!can_be_kernel(alone)) return;
    group_[i] = groups_.size();
    groups_.push_back(std::move(alone));
  }

  bool join(size_t i, size_t group) {
    Members more = groups_[group];
    more.insert(i);
    if (!is_convex(more) || !can_be_kernel(more)) return false;
    groups_[group] = std::move(more);
    group_[i] = group;
    return true;
  }

  void merge(size_t from, size_t to) {
    Members more = groups_[to];
    more.insert(groups_[from].begin(), groups_[from].end());
    if (!is_convex(more) || !can_be_kernel(more)) return;
    for (const size_t member : groups_[from]) group_[member] = to;
    groups_[to] = std::move(more);
    groups_[from].clear();
  }

  // Whether nothing outside both depends on the members and is needed by them: they could not run
  // as one. Other groups run as one too.
  bool is_convex(const Members& members) const {
    std::set<size_t> seen;
    std::vector<size_t> open;
    const auto visit_operands = [&](size_t i, bool from_member) {
      for (const ValueId operand : graph_.ops[i].operands) {
        const size_t maker = makers_[operand];
        if (maker == kNone) continue;
        if (members.contains(maker)) {
          if (!from_member) return false;
          continue;
        }
        if (seen.insert(maker).second) open.push_back(maker);
      }
      return true;
    };
    for (const size_t member : members) visit_operands(member, true);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      if (!visit_operands(i, false)) return false;
      if (group_[i] == kNone) continue;
      for (const size_t other : groups_[group_[i]])
        if (!members.contains(other) && seen.insert(other).second) open.push_back(other);
    }
    return true;
  }

  bool can_be_kernel(const Members& members) const {
    if (members.size() > kMostOps) return false;
    return lower_to_loops(body_of(members).graph, "fused").has_value();
  }

  struct Body {
    Graph graph;
    std::vector<ValueId> inputs;  // of the whole graph
    std::vector<ValueId> outputs;
  };

  Body body_of(const Members& members) const {
    Body body;
    body.graph.name = "body";
    std::map<ValueId, ValueId> here;
    const auto add = [&](const Node& op) {
      Node copied{.kind = op.kind, .attributes = op.attributes, .at = op.at};
      for (const ValueId operand : op.operands) copied.operands.push_back(here.at(operand));
      for (const ValueId result : op.results)
        copied.results.push_back(here[result] = body.graph.add_value(graph_.type(result)));
      body.graph.ops.push_back(std::move(copied));
    };
    // Inputs first: a body's inputs come before its operations.
    for (const size_t i : members)
      for (const ValueId operand : graph_.ops[i].operands) {
        const size_t maker = makers_[operand];
        const bool inside =
            maker != kNone && (members.contains(maker) || is_free(graph_.ops[maker]));
        if (inside || here.contains(operand)) continue;
        here[operand] =
            body.graph.add_input("in" + std::to_string(body.inputs.size()), graph_.type(operand));
        body.inputs.push_back(operand);
      }
    for (const size_t i : members) {
      for (const ValueId operand : graph_.ops[i].operands)
        if (!here.contains(operand)) add(graph_.ops[makers_[operand]]);
      add(graph_.ops[i]);
    }
    for (const size_t i : members)
      for (const ValueId result : graph_.ops[i].results) {
        const bool leaves =
            returned_.contains(result) || std::ranges::any_of(used_[result], [&](size_t user) {
              return !members.contains(user);
            });
        if (!leaves) continue;
        body.graph.add_output("out" + std::to_string(body.outputs.size()), here.at(result));
        body.outputs.push_back(result);
      }
    return body;
  }

  // A group that only moves numbers about, for the sake of one change of shape, stays as it is.
  void drop_useless() {
    for (Members& members : groups_) {
      if (members.empty()) continue;
      const Body body = body_of(members);
      if (!body.outputs.empty()) continue;
      for (const size_t member : members) group_[member] = kNone;
      members.clear();
    }
  }

  Graph write() {
    Rewrite rewrite(graph_);
    std::vector<bool> done(graph_.ops.size());
    for (size_t i = 0; i < graph_.ops.size(); ++i) write_op(i, rewrite, done);
    return std::move(rewrite).finish();
  }

  // After everything that it needs, which may come later in the list when it is in a group.
  void write_op(size_t i, Rewrite& rewrite, std::vector<bool>& done) {
    if (done[i]) return;
    const Members members = group_[i] == kNone ? Members{i} : groups_[group_[i]];
    for (const size_t member : members) done[member] = true;
    for (const size_t member : members)
      for (const ValueId operand : graph_.ops[member].operands)
        if (makers_[operand] != kNone && !members.contains(makers_[operand]))
          write_op(makers_[operand], rewrite, done);
    const Node& op = graph_.ops[i];
    if (group_[i] == kNone) {
      rewrite.copy(op, rewritten_body(op, fuse));
      return;
    }
    const Body body = body_of(members);
    Node fused{.kind = OpKind::fused,
               .operands = body.inputs,
               .results = body.outputs,
               .at = graph_.ops[*members.rbegin()].at};
    rewrite.copy(fused, std::make_shared<const Graph>(body.graph));
  }

  static constexpr size_t kNone = ~size_t{0};

  const Graph& graph_;
  std::vector<size_t> makers_;             // by value
  std::vector<std::vector<size_t>> used_;  // by value: the operations that read it
  std::set<ValueId> returned_;
  std::vector<size_t> group_;  // by operation
  std::vector<Members> groups_;
};

}  // namespace

Graph fuse(const Graph& graph) { return Fusion(graph).run(); }

}  // namespace tutti
