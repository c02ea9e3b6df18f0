// The instructions of a graph over its inputs, its outputs and one piece of scratch: the whole
// step, or a round of a repeat, which is planned once and instantiated for every round.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compile/program/program.h"

namespace tutti {

// Buffers of its instructions: the inputs in their order, the outputs, then the scratch.
struct FrameCode {
  std::vector<Instruction> instructions;
  int64_t bytes = 0;  // of scratch
};

// Generated kernels, equal ones once.
class LoopTable {
 public:
  explicit LoopTable(std::vector<LoopKernel>& kernels) : kernels_(kernels) {}
  int64_t add(LoopKernel kernel);
  bool is_copy(int64_t index) const;  // of what it reads, element by element

 private:
  std::vector<LoopKernel>& kernels_;
  std::map<std::string, int64_t> known_;
};

Result<FrameCode> lower_frame(const Graph& graph, LoopTable& loops);

}  // namespace tutti
