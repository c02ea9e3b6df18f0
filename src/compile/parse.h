// Reads what Graph::text() prints, as people write it for tests and as `tutti ir` is given it.
#pragma once

#include <string_view>

#include "compile/graph.h"

namespace tutti {

// `name` is what an error calls the text: "step.ir:3:14: …". Types may be left out where they
// follow from the operands; where they are given they are checked.
Result<Graph> parse_graph(std::string_view text, std::string_view name = "graph");

}  // namespace tutti
