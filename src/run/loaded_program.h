// Runs programs on this machine's processors: every instruction by all threads of a team, one after
// the other, in one call for the whole step. Nothing is allocated while it runs.
//
// Wherever the threads meet they look whether the epoch is over, and leave together with
// aborted(epoch). Not in commit: what was decided is rolled forward.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "compile/program/program.h"
#include "run/epoch_watch.h"
#include "world/native_code.h"
#include "world/team.h"

namespace tutti {

struct ProgramCall {
  // Memory of the inputs and outputs in their order; that of a state is given for both.
  std::span<std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::byte* arena = nullptr;
  const EpochWatch* epoch = nullptr;  // of none if null
};

class LoadedProgram {
 public:
  // Compiles what the program needs compiled. The team must outlive it.
  static Result<std::unique_ptr<LoadedProgram>> make(Program program, Team& team,
                                                     NativeCompiler& compiler);
  virtual ~LoadedProgram() = default;

  virtual const Program& program() const = 0;
  // Of scratch, which the caller owns; aligned to 64 bytes.
  virtual size_t arena_bytes() const = 0;
  Result<void> run(const ProgramCall& call) {
    return run_some(0, program().instructions.size(), call);
  }
  // The instructions from `first` to before `end`: who calls it for all of them one part after the
  // other has run the program, and may look at what is there in between.
  virtual Result<void> run_some(size_t first, size_t end, const ProgramCall& call) = 0;
};

}  // namespace tutti
