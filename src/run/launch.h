// An instruction made ready: which kernel, with which sizes, on which places of which buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "compile/program/program.h"
#include "kernels/share.h"
#include "run/commit_log.h"
#include "run/communicator.h"

namespace tutti {

using LoopFunction = void (*)(void* const* parameters, long first_row, long end_row,
                              long first_column, long end_column);

struct LaunchCall {
  std::span<std::byte* const> buffers;
  int phase;
  int thread;
  int threads;
  Turns* turns;          // of this phase
  std::byte* shared;     // workspace of all threads, for all phases
  std::byte* workspace;  // of this thread, for this phase
  Communicator* communicator = nullptr;
  const CommitLog* commit = nullptr;
};

class Launch {
 public:
  virtual ~Launch() = default;
  // Each begins when all threads are done with the one before.
  virtual int phases() const { return 1; }
  virtual size_t shared_bytes() const { return 0; }
  virtual size_t workspace_bytes() const { return 0; }
  // This thread's part of a phase.
  virtual Result<void> run(const LaunchCall& call) const = 0;
};

// For so many threads. The program and its panels must outlive it; panels are null where kernels do
// not pack.
std::unique_ptr<Launch> make_launch(const Program& program, const Instruction& instruction,
                                    std::span<const LoopFunction> loops,
                                    std::span<float* const> panels, int threads);

}  // namespace tutti
