// Turns one Spawn message into running ranks: all of them, or none and the reason.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/control_pages.h"
#include "cluster/keeper.pb.h"
#include "world/world.h"

namespace tutti {

// Where a spare finds the number of the handle on which its rank will come.
constexpr std::string_view kSpareVariable = "TUTTI_SPARE_FD";

// Where a rank with a control page finds the number of the arena that it shares with the others of
// its host (src/fabric/heap.h): a part of it for each page.
constexpr std::string_view kHeapVariable = "TUTTI_HEAP_FD";
constexpr std::string_view kHeapArena = "heap";

// Of those that are prepared, and then started together: each has its environment in memory, and
// both ends of its pipes open.
constexpr size_t kRanksAtOnce = 16;

// An arena as its keeper holds it. Ranks point to the one with their pages.
struct HeldArena {
  std::string name;
  uint64_t size_bytes = 0;
  Handle handle;
  std::unique_ptr<ControlPages> pages;  // once a Spawn named it for them
};

// Ranks and spares are numbered apart.
struct RankName {
  bool spare = false;
  uint32_t number = 0;
  auto operator<=>(const RankName&) const = default;
  std::string text() const { return fmt::format("{} {}", spare ? "spare" : "rank", number); }
};

struct HeldRank;

class RankWatcher {
 public:
  virtual void on_rank_exit(HeldRank& held, const Exit& exit) = 0;

 protected:
  ~RankWatcher() = default;
};

// A rank as its keeper holds it, from its start until its exit is acknowledged.
struct HeldRank final : ExitTaker {
  // From now on it stays where it is.
  void start_watching(RankWatcher& by, Scope& strands) {
    watcher = &by;
    process->tell_exit(*this, strands);
  }
  void on_exit(const Exit& exit) override { watcher->on_rank_exit(*this, exit); }

  RankWatcher* watcher = nullptr;
  RankName name;
  std::unique_ptr<Process> process;
  std::vector<Handle> outputs;  // our ends: output and error pipes, or one terminal, or nothing
  std::unique_ptr<Stream> assignment;  // to a spare, until it has its rank
  bool assigning = false;              // it was told its rank, and has not said that it took it
  std::unique_ptr<Exit> exit_meanwhile;
  HeldArena* arena = nullptr;  // with control pages; a spare may get one of them later
  std::optional<uint64_t> control_offset;
  uint64_t epoch = 0;
  Instant started{};
  Instant kill_at = kNever;  // when it does not end by itself, having been asked to
  int last_signal_sent = 0;
  bool outlived_grace = false;
  bool running = true;
};

// Handles are those attached to the message; the arena is the one it names, with its pages. The
// heap may be none.
Result<std::vector<HeldRank>> start_ranks(World& world, const keeper::Spawn& spawn,
                                          std::span<const Handle> handles, ProcessGroup* group,
                                          HeldArena* arena, const HeldArena* heap);

}  // namespace tutti
