// What operations between ranks are told (op.h): along which axis of the mesh, and between how
// many.
#pragma once

#include <cstdint>
#include <string>

#include "compile/graph.h"

namespace tutti {

// The value of {op} of an all_reduce that takes the greatest instead of the sum.
constexpr const char* kMaxOp = "max";

// Of an own_slice in the graph of one rank: which part is its own.
constexpr const char* kOwnIndex = "index";

inline bool is_collective(const Node& op) { return op_class(op.kind) == OpClass::collective; }
inline std::string collective_axis(const Node& op) {
  return op.attributes.get<std::string>("axis");
}
inline int64_t collective_ranks(const Node& op) { return op.attributes.get<int64_t>("ranks"); }
inline bool reduces_to_max(const Node& op) {
  return op.attributes.get<std::string>("op") == kMaxOp;
}

}  // namespace tutti
