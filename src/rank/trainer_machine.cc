#include "rank/trainer_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <list>

#include "base/hash.h"
#include "fabric/heap.h"
#include "rank/rank_fabric.h"
#include "run/cpu_device.h"
#include "train/machine_peak.h"
#include "tutti/control_page.h"
#include "world/real/cache_files.h"
#include "world/real/helper_thread.h"
#include "world/real/native_compiler.h"
#include "world/real/pages.h"
#include "world/real/parking.h"
#include "world/real/process_memory.h"
#include "world/real/rank_place.h"
#include "world/real/this_process.h"
#include "world/real/thread_team.h"

namespace tutti {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kLargePage = 2_MiB;
constexpr uint64_t kMostCacheBytes = 64;

// Large tensors in pages of their own, small ones side by side.
class OwnMemory final : public TrainerMemory {
 public:
  Result<StateTensor> state(const std::string&, const Type& type) override {
    const uint64_t bytes = (static_cast<uint64_t>(type.bytes()) + kLine - 1) / kLine * kLine;
    if (bytes > left_.size()) {
      TRY(Pages more, Pages::make(std::max(bytes, kLargePage)));
      const MutableBytes all = more.bytes();
      pages_.push_back(std::move(more));
      // What is left of the last ones may be more.
      if (all.size() - bytes < left_.size()) return StateTensor{.data = all.data()};
      left_ = all;
    }
    std::byte* at = left_.data();
    left_ = left_.subspan(bytes);
    return StateTensor{.data = at};
  }
  bool outlives_process() const override { return false; }

 private:
  std::list<Pages> pages_;
  MutableBytes left_;
};

uint32_t slots_of(const RankPlace& place) {
  return static_cast<uint32_t>(place.control->bytes().size() / TUTTI_CONTROL_BYTES);
}

// Scratch of the heap that the ranks of a host have in common: what others reduce and gather lies
// where it is computed. One thread allocates.
class HeapMemory final : public ProcessMemory {
 public:
  HeapMemory(Heap& heap, uint32_t sharers) : heap_(heap), sharers_(sharers) {}

  Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) override {
    TRY(const uint64_t offset, heap_.allocate(bytes));
    return std::make_unique<Piece>(heap_, offset, bytes);
  }
  void populate(MutableBytes) override {}  // its memory was there when it was allocated
  std::optional<uint64_t> available_bytes() override {
    const auto all = machine_.available_bytes();
    return all ? std::optional(*all / sharers_) : std::nullopt;
  }

 private:
  class Piece final : public Mapping {
   public:
    Piece(Heap& heap, uint64_t offset, uint64_t bytes)
        : Mapping({heap.at(offset), bytes}), heap_(heap), offset_(offset) {}
    ~Piece() override { heap_.free(offset_); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

   private:
    Heap& heap_;
    uint64_t offset_;
  };

  Heap& heap_;
  uint32_t sharers_;  // ranks of this host, which need as much
  RealProcessMemory machine_;
};

class RealTrainerMachine final : public TrainerMachine {
 public:
  explicit RealTrainerMachine(int threads) : team_(threads) {}

  // Its states are in the vault; of a rank among others, its scratch is where they see it.
  Result<void> take(RankPlace place) {
    if (place.alone) return {};
    const uint64_t owner[] = {hash64(as_bytes(place.role)), place.rank};
    Heap* heap = nullptr;
    if (place.world_size > 1) {
      TRY(rank_, RankFabric::open({}));
      Fabric& fabric = rank_->fabric();
      TRY_DO(fabric.join(fabric.timeout()));
      heap = &fabric.heap();
      heap_memory_.emplace(*heap, slots_of(place));
      among_others_.emplace(team_, *compiler_, *heap_memory_);
      workers_.emplace(fabric);
    } else {
      TRY(heap_, Heap::open(parking_, std::move(place.heap), slots_of(place), place.slot));
      heap = heap_.get();
    }
    TRY(const Vault vault,
        Vault::open(parking_, heap->vault(), hash64(std::as_bytes(std::span(owner)))));
    vault_ = vault;
    in_vault_.emplace(*vault_);
    control_ = std::move(place.control);
    const std::byte* page = control_->bytes().data() + place.slot * TUTTI_CONTROL_BYTES;
    epoch_ = EpochWatch(*reinterpret_cast<const tutti_control_page*>(page), parking_);
    return {};
  }

  TrainerHost host() override {
    return {.device = among_others_ ? *among_others_ : device_,
            .team = team_,
            .clock = parking_,
            .helper = helper_,
            .idler = idler_,
            .memory = in_vault_ ? static_cast<TrainerMemory&>(*in_vault_) : own_,
            .epoch = epoch_,
            .workers = workers_ ? &*workers_ : nullptr};
  }
  int threads() const override { return team_.threads(); }
  bool has_vault() const override { return in_vault_.has_value(); }
  std::optional<uint64_t> memory_bytes() const override { return own_memory_bytes(); }

  double peak_flops() override {
    const auto folder = cache_folder();
    const std::string name =
        fmt::format("peak/{:016x}-{}", hash64(as_bytes(processor_name())), team_.threads());
    if (folder) {
      const auto text = read_cache_file(*folder, name, kMostCacheBytes);
      double known = 0;
      if (text &&
          std::from_chars(text->data(), text->data() + text->size(), known).ec == std::errc() &&
          known > 0)
        return known;
    }
    const double peak = measure_fma_peak(team_, parking_);
    // Who cannot keep it measures again next time.
    if (folder) static_cast<void>(write_cache_file(*folder, name, fmt::format("{:.6g}\n", peak)));
    return peak;
  }

 private:
  // Before the team, which keeps this thread to a core of its own.
  HelperThread helper_;
  HelperThread idler_{Diligence::when_idle};
  ThreadTeam team_;
  std::unique_ptr<NativeCompiler> compiler_ = make_native_compiler();
  RealProcessMemory memory_;
  CpuDevice device_{team_, *compiler_, memory_};
  RealParking parking_;
  OwnMemory own_;
  std::unique_ptr<Mapping> control_;  // of a rank: all control pages of the host
  EpochWatch epoch_;
  std::unique_ptr<Heap> heap_;
  // Of a rank among others.
  std::unique_ptr<RankFabric> rank_;
  std::optional<HeapMemory> heap_memory_;
  std::optional<CpuDevice> among_others_;
  std::optional<Workers> workers_;
  std::optional<Vault> vault_;
  std::optional<VaultMemory> in_vault_;
};

}  // namespace

Result<std::unique_ptr<TrainerMachine>> TrainerMachine::open(TrainerMachineOptions options) {
  TRY(RankPlace place, find_rank_place());
  // The ranks of a host share its cores.
  const auto sharers = static_cast<int>(place.alone ? 1 : slots_of(place));
  const int threads = options.threads != 0 || sharers == 1
                          ? options.threads
                          : std::max(1, static_cast<int>(usable_cores()) / sharers);
  auto machine = std::make_unique<RealTrainerMachine>(threads);
  TRY_DO(machine->take(std::move(place)));
  return machine;
}

}  // namespace tutti
