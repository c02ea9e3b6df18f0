// Runs the graphs of all ranks of a mesh side by side, slowly and plainly: the judge of sharding.
#pragma once

#include <span>
#include <vector>

#include "compile/interpret.h"
#include "compile/shard/mesh.h"

namespace tutti {

// One graph for each rank; they may differ in what happens within a rank, but meet at the same
// operations between ranks. Inputs and outputs are by rank, then as interpret() has them. Ranks
// that do not meet are an error that names both and what each of them came to.
Result<std::vector<std::vector<Array>>> interpret_ranks(std::span<const Graph* const> graphs,
                                                        const ShardMesh& mesh,
                                                        std::vector<std::vector<Array>> inputs,
                                                        Precision precision = Precision::typed);

// The same graph on all ranks.
Result<std::vector<std::vector<Array>>> interpret_ranks(const Graph& graph, const ShardMesh& mesh,
                                                        std::vector<std::vector<Array>> inputs,
                                                        Precision precision = Precision::typed);

}  // namespace tutti
