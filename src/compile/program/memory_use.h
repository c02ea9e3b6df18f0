// Which bytes an instruction reads and writes, and whether two may run at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile/program/program.h"

namespace tutti {

// From the first to before the end, with the gaps of strided tensors. A state and its next value
// are one memory, which has the number of the state's buffer; panels are counted after the buffers.
struct MemoryUse {
  uint32_t memory;
  int64_t first;
  int64_t end;
  bool writes;
};

// Of an instruction's tensors, those of its edge included; workspaces are no memory of a program.
std::vector<MemoryUse> memory_uses(const Program& program, const Instruction& instruction);

// Whether one writes what the other reads or writes.
bool disturb(std::span<const MemoryUse> a, std::span<const MemoryUse> b);

}  // namespace tutti
