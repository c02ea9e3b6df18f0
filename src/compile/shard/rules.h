// Which axes split dimensions of which name: "batch=dp+fsdp,hidden=tp,time=tp".
//
// Rules are in order. An axis splits one dimension of a tensor only, and the earlier rule has it:
// with hidden=tp before time=tp, [batch, time, hidden] is split along hidden, and what has no
// hidden, as [batch, time, embed], along time: that is sequence parallelism.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/graph.h"
#include "compile/shard/mesh.h"

namespace tutti {

struct ShardRule {
  std::string dim;
  Names axes;  // the outermost first; none: it stays whole

  bool operator==(const ShardRule&) const = default;
};
using ShardRules = std::vector<ShardRule>;

// "hidden=tp,time=" and so on; every axis has to be one of the mesh.
Result<ShardRules> parse_rules(std::string_view text, const ShardMesh& mesh);
std::string rules_text(const ShardRules& rules);

// Whether the graph has the dimensions that a user's rules speak of.
Result<void> check_rules(const ShardRules& rules, const Graph& graph);

// What the axes of a mesh mean by their names, as far as it has them: dp splits the batch; fsdp
// too, and weights along embed; tp splits heads and hidden, and between them time.
ShardRules preset_rules(const ShardMesh& mesh);

// The user's come first, and are all there is about the dimensions that they name.
ShardRules joined_rules(ShardRules users, const ShardRules& presets);

}  // namespace tutti
