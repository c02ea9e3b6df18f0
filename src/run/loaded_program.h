// Runs programs on this machine's processors: every instruction by all threads of a team, one after
// the other, in one call for the whole step. Nothing is allocated while it runs.
#pragma once

#include <memory>
#include <vector>

#include "compile/program/program.h"
#include "world/native_code.h"
#include "world/team.h"

namespace tutti {

class LoadedProgram {
 public:
  // Compiles what the program needs compiled. The team must outlive it.
  static Result<std::unique_ptr<LoadedProgram>> make(Program program, Team& team,
                                                     NativeCompiler& compiler);
  virtual ~LoadedProgram() = default;

  virtual const Program& program() const = 0;
  // Of scratch, which the caller owns; aligned to 64 bytes.
  virtual size_t arena_bytes() const = 0;
  // Memory of the inputs and outputs in their order; that of a state is given for both.
  Result<void> run(const std::vector<std::byte*>& inputs, const std::vector<std::byte*>& outputs,
                   std::byte* arena) {
    return run_some(0, program().instructions.size(), inputs, outputs, arena);
  }
  // The instructions from `first` to before `end`: who calls it for all of them one part after the
  // other has run the program, and may look at what is there in between.
  virtual Result<void> run_some(size_t first, size_t end, const std::vector<std::byte*>& inputs,
                                const std::vector<std::byte*>& outputs, std::byte* arena) = 0;
};

}  // namespace tutti
