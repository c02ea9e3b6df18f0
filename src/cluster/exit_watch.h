// For who compares the ends that are told with those that happened, as simulations do.
#pragma once

#include "base/range_set.h"
#include "cluster/cluster.pb.h"

namespace tutti {

class ExitWatch {
 public:
  // The agent of a host was told by a keeper how a process ended.
  virtual void noted(uint32_t node, uint64_t job, uint64_t epoch, uint32_t process,
                     const cluster::Exit& exit) = 0;
  // A coordinator hears of these ends for the first time, and may die before it makes anything of
  // them.
  virtual void heard(uint64_t job, const cluster::Row& row, const RangeSet& processes) = 0;
  // What it makes of them is as durable as it must be, and goes out. It has another number in each
  // life.
  virtual void answered(uint64_t coordinator, uint64_t job, const cluster::Row& row,
                        const RangeSet& processes) = 0;

 protected:
  ~ExitWatch() = default;
};

}  // namespace tutti
