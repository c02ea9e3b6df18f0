#include "fabric/sim/gang_wires.h"

#include "fabric/sim/shaky_world.h"
#include "fabric/sim/sim_transport.h"

namespace tutti {

namespace {

class FlowWire final : public GangWire {
 public:
  FlowWire(SimHub& hub, const std::vector<uint32_t>& nodes, SimTransportOptions options)
      : nodes_(nodes), transport_(hub, std::move(options)) {}
  Task<Result<std::vector<uint32_t>>> begin_epoch(uint64_t epoch) override {
    transport_.begin_epoch(epoch);
    co_return nodes_;
  }
  Transport& transport() override { return transport_; }
  Task<void> close() override {
    transport_.end_epoch({Code::unavailable, "the transport was stopped"});
    co_return;
  }

 private:
  const std::vector<uint32_t>& nodes_;
  SimTransport transport_;
};

}  // namespace

Task<Result<std::unique_ptr<GangWire>>> FlowWires::open(World&, uint32_t rank, MutableBytes heap) {
  SimTransportOptions options{.rank = rank, .heap = heap};
  co_return std::make_unique<FlowWire>(hub_, nodes_, std::move(options));
}

class TcpWires::Wire final : public GangWire {
 public:
  Wire(TcpWires& wires, World& world, uint32_t rank)
      : wires_(wires),
        world_(world, wires.options_.seed * 1'000'003 + ++wires.opened_,
               wires.options_.shaken_one_in),
        page_(wires.book_, rank) {}

  Task<Result<void>> open(uint32_t rank, MutableBytes heap) {
    JobKey key{};
    key.fill(std::byte{7});
    TcpOptions options{.world = world_,
                       .addresses = page_,
                       .rank = rank,
                       .world_size = static_cast<uint32_t>(wires_.nodes_.size()),
                       .key = key,
                       .listen = Address::tcp(world_.host_name(), 0),
                       .heap = heap,
                       .streams = wires_.options_.streams,
                       .checksums = wires_.options_.checksums,
                       .encrypt = wires_.options_.encrypt};
    auto opened = co_await TcpTransport::open(std::move(options));
    if (!opened) co_return fail(std::move(opened).error());
    transport_ = *std::move(opened);
    co_return Result<void>{};
  }
  Task<Result<std::vector<uint32_t>>> begin_epoch(uint64_t epoch) override {
    transport_->begin_epoch(epoch);
    co_return wires_.nodes_;
  }
  Transport& transport() override { return *transport_; }
  Task<void> close() override {
    co_await transport_->stop();
    const TcpCounters& counters = transport_->counters();
    wires_.counters_.broken += counters.broken;
    wires_.counters_.corrupt += counters.corrupt;
    wires_.counters_.resent += counters.resent;
    wires_.counters_.duplicates += counters.duplicates;
  }

 private:
  TcpWires& wires_;
  ShakyWorld world_;
  MemoryBook::Page page_;
  std::unique_ptr<TcpTransport> transport_;
};

TcpWires::TcpWires(std::vector<uint32_t> nodes, TcpWiresOptions options)
    : nodes_(std::move(nodes)), options_(options) {}

Task<Result<std::unique_ptr<GangWire>>> TcpWires::open(World& world, uint32_t rank,
                                                       MutableBytes heap) {
  auto wire = std::make_unique<Wire>(*this, world, rank);
  auto opened = co_await wire->open(rank, heap);
  if (!opened) co_return fail(std::move(opened).error());
  co_return std::unique_ptr<GangWire>(std::move(wire));
}

}  // namespace tutti
