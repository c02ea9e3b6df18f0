// The schedule over threads: what may run beside what. A thread that is done with its share of an
// instruction goes on with the next one, while others are still busy with theirs, unless one of the
// two writes what the other reads or writes.
//
//   gemm (arena+0, w by 1,4) -> arena+64                 # the gradient of an input …
//   gemm (x by 1,4, arena+0) -> arena+128 beside 1       # … and that of weights
//   loops (arena+64) -> arena+256 beside 1               # needs the first, not the second
//
// Instructions keep their order, so bits do not depend on it.
#pragma once

#include "base/result.h"
#include "compile/program/program.h"

namespace tutti {

// Sets what every instruction may run beside, and its room. Commit begins when all is done that
// comes before: until then a step may be given up, and by all threads at once.
void schedule_over_threads(Program& program);

// Whether no two instructions that may run at once disturb each other, in memory or in a room.
// Code::internal names the first that do.
Result<void> check_schedule(const Program& program);

}  // namespace tutti
