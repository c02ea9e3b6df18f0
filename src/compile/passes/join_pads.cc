#include <algorithm>
#include <optional>

#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

class PadJoiner {
 public:
  explicit PadJoiner(const Graph& graph)
      : graph_(graph), makers_(makers(graph)), uses_(use_counts(graph)), rewrite_(graph) {}

  Graph run() {
    for (const Node& op : graph_.ops) {
      const auto parts = parts_of_sum(op);
      if (!parts) {
        rewrite_.copy(op, rewritten_body(op, join_pads));
        continue;
      }
      Node whole{.kind = OpKind::concat, .at = op.at};
      whole.attributes.set("dim", (*parts)[0]->attributes.get<std::string>("dim"));
      for (const Node* pad : *parts) whole.operands.push_back(rewrite_(pad->operands[0]));
      rewrite_.replace(op.results[0], rewrite_.make(std::move(whole)));
    }
    return std::move(rewrite_).finish();
  }

 private:
  // The terms of a sum of sums, as far as nobody else wants the inner ones.
  void collect(ValueId value, bool outermost, std::vector<const Node*>& terms) const {
    const Node* op = makers_[value];
    if (op != nullptr && op->kind == OpKind::add && (outermost || uses_[value] == 1)) {
      for (const ValueId operand : op->operands) collect(operand, false, terms);
    } else {
      terms.push_back(op);
    }
  }

  // The pads that a sum is of, in order, if they cover all of it and none of it twice.
  std::optional<std::vector<const Node*>> parts_of_sum(const Node& op) const {
    if (op.kind != OpKind::add) return std::nullopt;
    std::vector<const Node*> terms;
    collect(op.results[0], true, terms);
    for (const Node* term : terms)
      if (term == nullptr || term->kind != OpKind::pad ||
          term->attributes.get<std::string>("dim") != terms[0]->attributes.get<std::string>("dim"))
        return std::nullopt;
    const auto start = [](const Node* pad) { return pad->attributes.get<int64_t>("low"); };
    std::ranges::sort(terms, {}, start);
    const std::string dim = terms[0]->attributes.get<std::string>("dim");
    int64_t end = 0;
    for (const Node* pad : terms) {
      if (start(pad) != end) return std::nullopt;
      end += graph_.type(pad->operands[0]).size_of(dim);
    }
    if (end != graph_.type(op.results[0]).size_of(dim)) return std::nullopt;
    return terms;
  }

  const Graph& graph_;
  std::vector<const Node*> makers_;
  std::vector<uint32_t> uses_;
  Rewrite rewrite_;
};

}  // namespace

Graph join_pads(const Graph& graph) { return PadJoiner(graph).run(); }

}  // namespace tutti
