#include "rank/rank_fabric.h"

#include "base/hash.h"
#include "world/real/rank_place.h"
#include "world/real/this_process.h"

namespace tutti {

namespace {

Result<TuneWhen> tune_when(const RankFabricOptions& options) {
  if (options.tune) return *options.tune;
  const std::string said = fabric_tune_variable();
  if (said.empty()) return TuneWhen::lazily;
  auto when = parse_tune_when(said);
  if (!when) return fail(Code::invalid, "TUTTI_FABRIC_TUNE: {}", when.error().message());
  return when;
}

}  // namespace

Result<std::unique_ptr<RankFabric>> RankFabric::open(RankFabricOptions options) {
  auto rank = std::unique_ptr<RankFabric>(new RankFabric());
  TRY(RankPlace place, find_rank_place());
  if (options.transport.empty()) options.transport = place.transport;
  if (options.transport != "tcp" && options.transport != "ucx")
    return fail(Code::invalid, "there is no transport '{}'; use tcp or ucx", options.transport);
  TRY(const TuneWhen tune, tune_when(options));
  rank->gang_ = hash64(as_bytes(place.role));
  FabricOptions mine{.heap = std::move(place.heap),
                     .control = std::move(place.control),
                     .slot = place.slot,
                     .gang = rank->gang_,
                     .rank = place.rank,
                     .world_size = place.world_size,
                     .cores = usable_cores(),
                     .timeout = options.timeout,
                     .tune = tune,
                     .tunings = &rank->tunings_};
  if (place.elsewhere) {
    const MutableBytes heap = mine.heap->bytes();
    const auto slots = static_cast<uint32_t>(mine.control->bytes().size() / TUTTI_CONTROL_BYTES);
    const auto [begin, end] = Heap::part_of(heap.size(), slots, place.slot);
    rank->engine_ = std::make_unique<EngineThread>();
    rank->wiring_ = std::make_unique<ClusterWiring>(
        rank->engine_->world(), ClusterWiringOptions{.identity = {.socket = place.exchange,
                                                                  .job = place.job,
                                                                  .life = place.life,
                                                                  .process = place.process},
                                                     .rank = place.rank,
                                                     .world_size = place.world_size,
                                                     .heap = heap,
                                                     .put_begin = begin + kBoardBytes,
                                                     .put_end = end,
                                                     .transport = options.transport,
                                                     .streams = options.streams,
                                                     .checksums = options.checksums,
                                                     .encrypt = options.encrypt,
                                                     .timeout = options.timeout});
    mine.engine = rank->engine_.get();
    mine.wiring = rank->wiring_.get();
  }
  TRY(rank->fabric_, Fabric::open(rank->parking_, std::move(mine)));
  if (!place.alone) {
    uint32_t& line = rank->fabric_->page().lifeline;
    TRY(rank->lifeline_, Lifeline::hold(reinterpret_cast<std::atomic<uint32_t>&>(line)));
  }
  return rank;
}

// Groups go before the engine that works for them, and the transport before its loop.
RankFabric::~RankFabric() {
  if (!here()) {
    (void)fabric_.release();
    (void)wiring_.release();
    (void)engine_.release();
    return;
  }
  lifeline_.reset();
  fabric_.reset();
  if (engine_ == nullptr) return;
  engine_->at_end([wiring = wiring_.get()] { return wiring->stop(); });
  engine_->stop();
}

}  // namespace tutti
