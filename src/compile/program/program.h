// What runs: a flat list of instructions over planned buffers. A device executes it, or charges for
// it; nothing is decided any more while it runs.
//
// Every thread of a device runs all instructions in order, its share of each. It begins one when
// all threads are done with those before, but for those that it may run beside (schedule.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/loop/loop_kernel.h"

namespace tutti {

enum class Kernel : uint8_t {
  loops,      // generated; operands and results are its parameters
  gemm,       // (a[m,k], b[k,n]) -> c[m,n]; {accumulate}; an edge finishes blocks of c
  attention,  // as the operation
  attention_grad,
  layer_norm,
  layer_norm_grad_rows,  // sums over groups of rows …
  layer_norm_grad_join,  // … and of the groups
  rms_norm,
  rms_norm_grad_rows,
  rms_norm_grad_join,
  cross_entropy,  // (logits, targets, dloss) -> loss, and logits become their gradient
  gather,
  scatter_add,
  update,    // nothing but the rows is written when cache and result are one place
  sum_rows,  // over the first dimensions: sums of groups of rows …
  sum_rows_join,
  sum_chunks,     // of all elements: sums of canonical chunks …
  square_chunks,  // … or of their squares …
  join_chunks,    // … and of these
  adamw,
  // With all workers of an axis: {call, axis, slot, …} as the operation (run/communicator.h).
  collective_start,  // what it reads must not change, and what it makes must not be read, until …
  collective_wait,   // … this one of the same slot, which has the same operands and results
  plain,             // any other operation, element after element
};

std::string_view kernel_name(Kernel kernel);

// The step has three phases: whoever dies before it was decided is started over; what was decided
// is rolled forward. Only commit writes state.
enum class Section : uint8_t { compute, decide, commit };

// A tensor in a buffer, with gaps if need be.
struct TensorRef {
  uint32_t buffer = 0;
  int64_t offset = 0;  // in elements
  Type type;
  std::vector<int64_t> strides;  // in elements, one for each dimension

  bool is_dense() const;
};

struct Instruction {
  Kernel kernel;
  OpKind kind = OpKind::constant;  // of plain
  Attributes attributes;
  std::vector<TensorRef> operands;
  std::vector<TensorRef> results;
  int64_t loops = -1;           // the generated kernel, or that of a gemm's edge
  std::vector<TensorRef> edge;  // parameters of the edge
  Section section = Section::compute;
  // How many instructions right before it others may still be busy with when it begins.
  size_t beside = 0;
  uint32_t room = 0;  // which workspace of all threads it uses, if it does
  // Of a gemm, the panel that holds b; of adamw, those that it writes (packing.h).
  std::vector<uint32_t> panels;
  std::string at;
};

// Workspaces of all threads: two instructions that run beside each other have one each.
constexpr uint32_t kSharedRooms = 2;

enum class BufferPlace : uint8_t { input, output, arena };

struct ProgramBuffer {
  BufferPlace place;
  uint32_t index = 0;  // of the input or output
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;
};

struct Program {
  std::vector<Input> inputs;  // their values are indices of `buffers`
  std::vector<Output> outputs;
  std::vector<Type> input_types;
  std::vector<Type> output_types;
  std::vector<ProgramBuffer> buffers;
  int64_t arena_bytes = 0;
  std::vector<TensorRef> panels;  // matrices [k, n] of states that a device keeps packed
  std::vector<LoopKernel> loops;
  std::vector<Instruction> instructions;

  std::string text() const;
  // The first instruction that writes a state; all of them if none does.
  size_t commit_begin() const {
    const auto first = std::ranges::find(instructions, Section::commit, &Instruction::section);
    return static_cast<size_t>(first - instructions.begin());
  }
};

}  // namespace tutti
