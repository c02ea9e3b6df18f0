#include "compile/program/schedule.h"

#include <algorithm>
#include <array>
#include <vector>

#include "compile/program/memory_use.h"

namespace tutti {
namespace {

// Kernels that may need a workspace of all threads: products pack an operand for all.
bool has_room(Kernel kernel) { return kernel == Kernel::gemm; }

// Rooms that instructions have taken, each by its last one.
class Rooms {
 public:
  // One that is free when all threads are done with what comes before `done`; if there is none, the
  // one that will be first, and that is waited for.
  uint32_t take(size_t index, size_t& done) {
    const auto free = std::ranges::find_if(ends_, [&](size_t end) { return end <= done; });
    const auto room = free != ends_.end() ? free : std::ranges::min_element(ends_);
    done = std::max(done, *room);
    *room = index + 1;
    return static_cast<uint32_t>(room - ends_.begin());
  }

 private:
  std::array<size_t, kSharedRooms> ends_{};  // after the last instruction in it
};

}  // namespace

void schedule_over_threads(Program& program) {
  std::vector<std::vector<MemoryUse>> uses;
  Rooms rooms;
  size_t done = 0;  // by all threads: what comes before this one
  const size_t commit = program.commit_begin();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    uses.push_back(memory_uses(program, instruction));
    if (i == commit) done = i;
    for (size_t j = i; j-- > done;)
      if (disturb(uses[j], uses[i])) done = j + 1;
    if (has_room(instruction.kernel)) instruction.room = rooms.take(i, done);
    instruction.beside = i - done;
  }
}

Result<void> check_schedule(const Program& program) {
  const size_t commit = program.commit_begin();
  std::vector<std::vector<MemoryUse>> uses;
  size_t done = 0;  // when an instruction begins, those before it have also begun
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& its = program.instructions[i];
    if (its.beside > i || its.room >= kSharedRooms)
      return fail(Code::internal, "instruction {} runs beside more than come before it", i);
    done = std::max(done, i - its.beside);
    if (i == commit && done != i)
      return fail(Code::internal, "commit begins beside instructions that may be given up");
    uses.push_back(memory_uses(program, its));
    for (size_t j = done; j < i; ++j) {
      const Instruction& other = program.instructions[j];
      const bool one_room =
          has_room(its.kernel) && has_room(other.kernel) && its.room == other.room;
      if (one_room || disturb(uses[i], uses[j]))
        return fail(Code::internal, "instruction {}, {}, may not run beside {}, {}", i,
                    kernel_name(its.kernel), j, kernel_name(other.kernel));
    }
  }
  return {};
}

}  // namespace tutti
