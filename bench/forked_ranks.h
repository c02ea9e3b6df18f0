// Ranks for benchmarks: forked processes of this machine with a heap in common, in one epoch.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "fabric/group.h"
#include "world/real/parking.h"

namespace tutti {

template <class T>
T or_die(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "bench: %s\n", result.error().text().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

inline MutableBytes map_shared(uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) std::abort();
  return {static_cast<std::byte*>(pages), bytes};
}

class PlainMapping final : public Mapping {
 public:
  explicit PlainMapping(MutableBytes bytes) : Mapping(bytes) {}
};

// Where every rank has a core, as `mpirun --bind-to core` does it.
inline void bind_to_core(uint32_t rank, uint32_t ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (ranks > std::thread::hardware_concurrency()) return;
  CPU_SET(rank, &allowed);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

struct Span {
  uint64_t start_ns;
  uint64_t end_ns;
};

// Over calls, each from its first rank's start to its last one's end: ranks that share a core do
// not all start at once.
inline double median_span_ns(std::span<const Span> times, size_t ranks) {
  std::vector<uint64_t> calls;
  for (size_t i = 0; i < times.size(); i += ranks) {
    const auto call = times.subspan(i, ranks);
    calls.push_back(std::ranges::max(call, {}, &Span::end_ns).end_ns -
                    std::ranges::min(call, {}, &Span::start_ns).start_ns);
  }
  std::ranges::sort(calls);
  return static_cast<double>(calls[calls.size() / 2]);
}

// Runs `body` in each rank, with `more` in its options; 1 if any failed, like an exit status.
inline int on_forked_ranks(uint32_t ranks, const std::function<void(FabricOptions&)>& more,
                           const std::function<void(Fabric&)>& body) {
  const MutableBytes heap = map_shared(uint64_t{64} << 30);
  const MutableBytes control = map_shared(uint64_t{ranks} * TUTTI_CONTROL_BYTES);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    auto& page = *reinterpret_cast<tutti_control_page*>(control.data() +
                                                        uint64_t{rank} * TUTTI_CONTROL_BYTES);
    page.rank = rank;
    page.epoch = 1;
    page.magic = TUTTI_CONTROL_MAGIC;
  }
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    bind_to_core(rank, ranks);
    RealParking parking;
    FabricOptions options{.heap = std::make_unique<PlainMapping>(heap),
                          .control = std::make_unique<PlainMapping>(control),
                          .slot = rank,
                          .gang = 1,
                          .rank = rank,
                          .world_size = ranks,
                          .cores = std::thread::hardware_concurrency()};
    if (more) more(options);
    auto fabric = or_die(Fabric::open(parking, std::move(options)));
    or_die(fabric->join(30s));
    body(*fabric);
    std::exit(0);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  return failed ? 1 : 0;
}

}  // namespace tutti
