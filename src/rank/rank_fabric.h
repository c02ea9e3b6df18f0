// The fabric of a program that tutti started, on Linux: its place in memory, and where its gang is
// on several hosts, a thread for what travels between them. Outside of a job a process is alone.
//
//   auto rank = RankFabric::open({.timeout = 10min});
//   TRY_DO((*rank)->fabric().join(10min));
//   TRY_DO((*rank)->fabric().world()->run({.kind = CallKind::all_reduce, …}));
#pragma once

#include <memory>
#include <optional>

#include "fabric/fabric.h"
#include "rank/cluster_wiring.h"
#include "rank/tuning_files.h"
#include "world/real/engine_thread.h"
#include "world/real/lifeline.h"
#include "world/real/parking.h"

namespace tutti {

struct RankFabricOptions {
  Duration timeout = 10min;  // of every wait
  // Between hosts; the same for all ranks.
  std::string transport{};  // "tcp" or "ucx"; else what TUTTI_FABRIC_TRANSPORT says, or tcp
  uint32_t streams = 1;
  bool checksums = true;
  bool encrypt = false;
  // Rank 0's counts. Without, what TUTTI_FABRIC_TUNE says: off, auto or now; else auto.
  std::optional<TuneWhen> tune;
};

class RankFabric {
 public:
  static Result<std::unique_ptr<RankFabric>> open(RankFabricOptions options);
  ~RankFabric();
  RankFabric(const RankFabric&) = delete;
  RankFabric& operator=(const RankFabric&) = delete;

  Fabric& fabric() { return *fabric_; }
  Parking& parking() { return parking_; }
  uint64_t gang() const { return gang_; }
  // Not in a process that was forked from the rank: then nothing of this is its to use or to end.
  bool here() const { return lifeline_ == nullptr || lifeline_->here(); }

 private:
  RankFabric() = default;

  RealParking parking_;
  TuningFiles tunings_;
  uint64_t gang_ = 0;  // a hash of its name
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<ClusterWiring> wiring_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Lifeline> lifeline_;
};

}  // namespace tutti
