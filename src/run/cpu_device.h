// This machine's processors: every instruction by all threads of a team, in their order, in one
// call for the whole step; a thread waits only for what the schedule says. Nothing is allocated
// while it runs.
//
// The one who waits for a program is a thread of the team: the work is done in wait(). After every
// phase threads look whether the epoch is over, and leave together.
#pragma once

#include "run/device.h"
#include "world/native_code.h"
#include "world/process_memory.h"
#include "world/team.h"

namespace tutti {

class CpuDevice final : public Device {
 public:
  // All must outlive it.
  CpuDevice(Team& team, NativeCompiler& compiler, ProcessMemory& memory)
      : team_(team), compiler_(compiler), memory_(memory) {}

  Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) override {
    return memory_.allocate(bytes);
  }
  void touch(MutableBytes part) override { memory_.populate(part); }
  std::optional<uint64_t> available_bytes() override { return memory_.available_bytes(); }
  Result<std::unique_ptr<LoadedProgram>> load(Program program) override;

 private:
  Team& team_;
  NativeCompiler& compiler_;
  ProcessMemory& memory_;
};

}  // namespace tutti
