#include "compile/passes/passes.h"

#include <array>

#include "base/assert.h"
#include "compile/verify.h"

namespace tutti {
namespace {

constexpr std::array<Pass, 11> kPasses = {{
    {"expand", expand},
    {"simplify", simplify},
    {"merge-equal", merge_equal},
    {"join-losses", join_losses},
    {"join-pads", join_pads},
    {"remove-unused", remove_unused},
    {"join-gradients", join_gradients},
    {"sink-sums", sink_sums},
    {"simplify-again", simplify},
    {"fuse", fuse},
    {"remove-unused-again", remove_unused},
}};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Graph optimize(Graph graph, std::string_view until) {
  for (const Pass& pass : kPasses) {
    graph = pass.run(graph);
    const auto checked = verify(graph);
    TUTTI_ASSERT(checked.has_value(), "a pass keeps a graph right");
    if (pass.name == until) break;
  }
  return graph;
}

}  // namespace tutti
