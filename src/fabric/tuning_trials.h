// What is tried to find a Tuning, and what follows from the times: arithmetic. All ranks have the
// same list; rank 0 says which of it comes next, and notes how long it took.
#pragma once

#include <vector>

#include "base/units.h"
#include "fabric/tuning.h"

namespace tutti {

struct TuningTrial {
  enum class What : uint8_t { small, stream, reduce, gather };
  What what = What::small;
  uint64_t bytes = 0;  // of small a vector, of stream all memory that is touched, else of a rail
  bool wanted = true;  // of small: in one tick; of stream: past the caches
  RailWay way = RailWay::direct;
  int calls = 1;  // that are timed together
};

class TuningTrials {
 public:
  // On one host how data travels in it; on several the ways between them.
  TuningTrials(Tuning defaults, uint32_t hosts);

  const std::vector<TuningTrial>& list() const { return list_; }
  // The most that a vector of a trial has, when each of `ranks` has one.
  uint64_t most_bytes(uint32_t ranks) const;

  // The one to do next, when so much time has passed; -1 when it is up, or all were done often
  // enough. A trial that may not end in time is left out.
  int next(Duration passed);
  void note(size_t trial, Duration took);

  // The defaults, but for what was clearly faster.
  Tuning decide() const;

 private:
  void add(TuningTrial::What what, uint64_t bytes, int calls);
  const Duration* time_of(TuningTrial::What what, uint64_t bytes, bool wanted, RailWay way) const;
  Duration expected(size_t trial) const;
  uint64_t decide_small() const;
  uint64_t decide_stream() const;
  RailWay decide_way(TuningTrial::What what, size_t size_class, RailWay usual) const;

  Tuning defaults_;
  std::vector<TuningTrial> list_;
  std::vector<Duration> best_;  // by trial; kUnknown
  size_t next_ = 0;
  int round_ = 0;
};

}  // namespace tutti
