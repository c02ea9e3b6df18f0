// Reads the output of many ranks at once and hands it to a listener.
#pragma once

#include <memory>
#include <optional>

#include "cluster/gang.h"
#include "world/semaphore.h"
#include "world/world.h"

namespace tutti {

class OutputReaders {
 public:
  OutputReaders(World& world, GangListener& listener) : world_(world), listener_(listener) {}

  Result<void> add(uint32_t rank, RankStream stream, Handle handle);

  // Waits for the listener to refuse output, or for the end of all reading.
  Task<std::optional<Error>> failure();

  // Call once, when the ranks are gone: reads what is left. A pipe that stays open and silent is
  // held by somebody who is none of ours, and given up. When not patient, so is a listener that
  // takes nothing.
  Task<OutputEnd> finish(bool patient);
  // No longer patient, from now on.
  void hurry() { patient_ = false; }

 private:
  Task<void> read(uint32_t rank, RankStream kind, std::unique_ptr<Stream> stream);
  Task<void> give_up_when_stuck();

  World& world_;
  GangListener& listener_;
  std::optional<Error> error_;
  Event over_;             // an error, or everything read
  uint64_t progress_ = 0;  // reads and hand-overs so far
  size_t handing_over_ = 0;
  size_t unfinished_ = 0;
  bool patient_ = true;
  OutputEnd end_ = OutputEnd::complete;
  Scope readers_;  // last: its strands use the rest
};

}  // namespace tutti
