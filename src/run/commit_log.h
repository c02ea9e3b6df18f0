// What lets a commit go on that was killed at any store: of every block of an update whether it is
// done, and the old values of those under way (kernels/adamw.h). It lies in memory that outlives
// the process.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "compile/program/program.h"
#include "kernels/adamw.h"

namespace tutti {

// Of all updates of a program; and of those before an instruction of it. Blocks begin anew with
// every strip of rows where an update packs weights.
int64_t commit_blocks(const Program& program);
int64_t first_commit_block(const Program& program, size_t index);

class CommitLog {
 public:
  static uint64_t record_bytes(int threads);

  CommitLog() = default;  // keeps nothing
  CommitLog(MutableBytes records, std::span<uint32_t> done);

  bool keeps() const { return !done_.empty(); }
  // Steps count from 1. What one before us left half-done of the same step is undone.
  void begin(int64_t step);
  // The states are other ones now: steps that were done may come again.
  void forget();
  // A part of an update, whose first block this is; by a thread.
  void update(int thread, int64_t first_block, const AdamWStep& step,
              const AdamWArrays& arrays) const;

 private:
  std::span<AdamWRecord> records_;  // of threads
  std::span<uint32_t> done_;        // the last step that each block has
  uint32_t step_ = 0;
};

}  // namespace tutti
