#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {

// The user's line is not part of what is computed: the first one's is kept.
Graph merge_equal(const Graph& graph) {
  Rewrite rewrite(graph);
  std::map<std::string, std::vector<ValueId>> known;
  for (const Node& op : graph.ops) {
    auto body = rewritten_body(op, merge_equal);
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) operands.push_back(rewrite(operand));
    const std::string key = fmt::format("{}({}){}:{}{}", op_info(op.kind).name,
                                        fmt::join(operands, ","), op.attributes.text(),
                                        op.results.empty() ? "" : graph.type(op.results[0]).text(),
                                        body == nullptr ? "" : body->text());
    const auto found = known.find(key);
    if (found != known.end()) {
      for (size_t i = 0; i < op.results.size(); ++i)
        rewrite.replace(op.results[i], found->second[i]);
      continue;
    }
    rewrite.copy(op, std::move(body));
    known[key] = rewrite.graph().ops.back().results;
  }
  return std::move(rewrite).finish();
}

}  // namespace tutti
