// Runs a program slowly and plainly, instruction by instruction, on memory as it would be: the
// judge of lowering and memory plans, and what a machine without a compiler could do.
#pragma once

#include "compile/interpret.h"
#include "compile/program/program.h"

namespace tutti {

// One array for each input; one for each output. States that are outputs too share their memory.
Result<std::vector<Array>> interpret_program(const Program& program,
                                             const std::vector<Array>& inputs);

// One instruction on the memory of the program's buffers: the first byte of each.
Result<void> interpret_instruction(const Program& program, const Instruction& instruction,
                                   const std::vector<std::byte*>& buffers);

// An array as it lies in memory, without gaps.
void write_array(const Array& array, std::byte* to);
Array read_array(const Type& type, const std::byte* from);

}  // namespace tutti
