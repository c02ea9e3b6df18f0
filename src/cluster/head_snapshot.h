// A snapshot of the head's state, taken in slices while the head goes on: a hundred thousand jobs
// are a few hundred megabytes, and nobody shall wait for them.
//
//   HeadSnapshotTaker taker(state);
//   while (!taker.take_some(bytes)) co_await yield();   // and note() what changes meanwhile
//   auto pieces = taker.finish();                          // the state as it is now
//
// Every job is taken once, and again when it changed after that; the last slice is taken at the
// moment that the snapshot stands for.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/head_state.h"

namespace tutti {

class HeadSnapshotTaker {
 public:
  explicit HeadSnapshotTaker(const HeadState& state) : state_(state) {}

  // There is a record of this job: what was taken of it is old.
  void note(uint64_t job);
  // Takes jobs of about so many bytes; true when few are left to finish with.
  bool take_some(size_t bytes);
  // In pieces that are read one after the other.
  std::vector<std::string> finish();

 private:
  void take(uint64_t job);

  const HeadState& state_;
  uint64_t next_ = 0;         // jobs before it were taken
  std::set<uint64_t> stale_;  // of these, those that have changed
  std::vector<std::string> pieces_;
};

// Makes an empty state what the snapshot says. Code::corrupt when that is nothing.
Result<void> restore_snapshot(uint64_t sequence, std::string_view bytes, HeadState& state);

}  // namespace tutti
