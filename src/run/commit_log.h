// What lets a commit go on that was killed at any store: of every block of an update whether it is
// there, and of those under way the new values. It lies in memory that outlives the process.
//
// A thread writes a block's new values into its record, says that they are whole, copies them to
// where they belong, and says that the block is done. So a block is done, or in a record, or as it
// was: whoever goes on copies what is in records, and updates what is left. Which thread has which
// block does not matter, nor how many there are.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "compile/program/program.h"
#include "kernels/adamw.h"

namespace tutti {

// So few that a record and its block stay in the nearest cache.
inline constexpr int64_t kCommitBlock = 512;

// Of all updates of a program; and of those before an instruction of it. Blocks begin anew with every strip of
// rows where an update packs weights.
int64_t commit_blocks(const Program& program);
int64_t first_commit_block(const Program& program, size_t index);

class CommitLog {
 public:
  static uint64_t record_bytes(int threads);

  CommitLog() = default;  // keeps nothing
  CommitLog(MutableBytes records, std::span<uint32_t> done);

  bool keeps() const { return !done_.empty(); }
  // Steps count from 1. What one before us left of the same step is completed.
  void begin(int64_t step);
  // The states are other ones now: steps that were done may come again.
  void forget();
  // A part of an update, whose first block this is; by a thread.
  void update(int thread, int64_t first_block, const AdamWStep& step,
              const AdamWArrays& arrays) const;

 private:
  struct Record;
  Record& record(int thread) const;

  MutableBytes records_;
  std::span<uint32_t> done_;  // the last step that each block has
  uint32_t step_ = 0;
};

}  // namespace tutti
