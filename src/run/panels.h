// The panels of a program: where they are, and whether they hold what the states do.
//
// They are made when a program first runs, written by its own updates from then on, and made anew
// when somebody else has changed the states or an update was not finished.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/program/program.h"
#include "world/process_memory.h"
#include "world/team.h"

namespace tutti {

class Panels {
 public:
  // Memory for all of them, if the kernels of this processor pack.
  Result<void> allocate(const Program& program, ProcessMemory& memory);
  std::span<float* const> places() const { return places_; }
  uint64_t bytes() const { return room_ == nullptr ? 0 : room_->bytes().size(); }

  void forget() { fresh_ = false; }
  // Packs what is in the buffers, unless that was done and is still so.
  void renew(const Program& program, std::span<std::byte* const> buffers, Team& team);

 private:
  std::unique_ptr<Mapping> room_;
  std::vector<float*> places_;  // null where nothing is packed
  bool fresh_ = false;
  std::vector<const std::byte*> sources_;  // when they were made
};

}  // namespace tutti
