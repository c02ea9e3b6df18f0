// Memory shared by the processes of a simulated host: plain memory of the simulator. Arenas live
// while a handle or mapping refers to them, and end with a crash of their host. A small one of
// which all mappings rest is kept as what differs from those of other hosts.
#pragma once

#include "world/memory.h"
#include "world/sim/handles.h"

namespace tutti {

class SimHost;

class SimMemory final : public Memory {
 public:
  explicit SimMemory(SimHost& host) : host_(host) {}

  Result<Handle> create_arena(std::string name, uint64_t size) override;
  Result<uint64_t> arena_size(const Handle& arena) override;
  Result<std::unique_ptr<Mapping>> map(const Handle& arena, uint64_t offset, uint64_t size,
                                       bool writable) override;
  Task<Result<void>> wait(const std::atomic<uint32_t>& word, uint32_t expected,
                          Instant deadline) override;
  void wake_all(std::atomic<uint32_t>& word) override;
  void tell_wake(const Mapping& mapping, uint64_t offset, uint32_t expected, WakeTaker& taker,
                 uint64_t tag, Scope& scope) override;

 private:
  class Wait;
  class Watch;
  class ArenaMapping;
  SimHost& host_;
  List<Wait> waiting_;  // few, as those below: searched one by one
  List<Watch> watches_;
};

}  // namespace tutti
