// What programs run on: memory for their scratch, and whatever executes their instructions.
//
// The cpu is the one there is (cpu_device.h). Another kind would make kernels of the same programs,
// and a simulated one would charge time and memory for them. One thread at a time uses a device.
//
//   TRY(auto program, device.load(std::move(lowered)));
//   TRY(auto arena, device.allocate(program->arena_bytes()));
//   program->start({0, program->program().commit_begin()}, {.inputs = …, .arena = …});
//   TRY_DO(program->wait());
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "compile/program/program.h"
#include "run/commit_log.h"
#include "run/communicator.h"
#include "run/epoch_watch.h"
#include "world/disk.h"

namespace tutti {

struct ProgramCall {
  // Memory of the inputs and outputs in their order; that of a state is given for both.
  std::span<std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  std::byte* arena = nullptr;
  const EpochWatch* epoch = nullptr;     // of none if null
  Communicator* communicator = nullptr;  // of programs with collectives
  const CommitLog* commit = nullptr;     // where a commit is to be gone on with by another process
};

// Instructions of a program, from the first to before the end. Who runs all of them, one part after
// the other, has run the program, and may look at what is there in between.
struct InstructionRange {
  size_t first;
  size_t end;
};

// A program that is ready to run. The device must outlive it.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;

  virtual const Program& program() const = 0;
  // Of scratch, with what kernels need besides what was planned.
  virtual uint64_t arena_bytes() const = 0;
  // Of weights that it keeps packed, besides its scratch.
  virtual uint64_t panel_bytes() const { return 0; }
  // Somebody else has written states since it last ran: what is derived from them is made anew.
  virtual void states_changed() {}
  // Begins; what the call names is there until wait() returns, which gives what went wrong. When
  // the epoch is over it does not go on: aborted(epoch). Not in commit: what was decided is rolled
  // forward.
  virtual void start(InstructionRange instructions, const ProgramCall& call) = 0;
  virtual Result<void> wait() = 0;

  Result<void> run(InstructionRange instructions, const ProgramCall& call) {
    start(instructions, call);
    return wait();
  }
  Result<void> run(const ProgramCall& call) {
    return run({0, program().instructions.size()}, call);
  }
};

class Device {
 public:
  virtual ~Device() = default;
  // For the scratch of programs, aligned to 64 bytes; as long as what is returned lives.
  virtual Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) = 0;
  // Gives a part of it its memory now, which else comes when it is first used. Changes nothing in
  // it. Any thread may call it.
  virtual void touch(MutableBytes part) = 0;
  // What could still be allocated; nothing if nobody knows.
  virtual std::optional<uint64_t> available_bytes() = 0;
  // Makes a program ready, with its kernels.
  virtual Result<std::unique_ptr<LoadedProgram>> load(Program program) = 0;
};

}  // namespace tutti
