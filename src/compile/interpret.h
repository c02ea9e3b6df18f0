// Runs a graph slowly and plainly: the judge of every pass and kernel.
//
// Values are held as doubles. `typed` rounds each result to its kind of number, as a machine would
// that has no fused or reordered sums; `wide` does not, for finite differences.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "compile/graph.h"

namespace tutti {

struct Array {
  Type type;
  std::vector<double> values;  // the last dimension varies fastest
};

enum class Precision : uint8_t { typed, wide };

double rounded(double value, DType dtype);
// An operation on one, two or three operands, for one element; not rounded.
double apply_elementwise(OpKind kind, std::span<const double> operands);

// One array for each input, in their order; one for each output. Whatever its operations are told
// wrongly (an index outside of its table) is an error that names the operation and its line.
Result<std::vector<Array>> interpret(const Graph& graph, std::vector<Array> inputs,
                                     Precision precision = Precision::typed);

// The key of a stream of random numbers.
uint64_t stream_key(int64_t seed, std::string_view stream);

}  // namespace tutti
