#include "rank/cluster_wiring.h"

#include <cstring>

namespace tutti {

namespace {

std::string key_of(uint64_t epoch, uint32_t rank) {
  return fmt::format("tutti.fabric/{}/{}", epoch, rank);
}

}  // namespace

Task<Result<std::vector<uint32_t>>> ClusterWiring::begin_epoch(uint64_t epoch) {
  const Instant by = deadline();
  auto table = co_await exchange_.gang(epoch, by);
  if (!table) {
    // The agent knows of a later one, which our page will tell of too.
    if (table.error().code() == Code::denied)
      co_return fail(Code::unavailable, "{}", table.error().text());
    co_return fail(std::move(table).error());
  }
  if (table->epoch != epoch)
    co_return fail(Code::unavailable, "epoch {} has begun after {}", table->epoch, epoch);
  if (table->nodes.size() != options_.world_size)
    co_return fail(Code::internal, "the agent knows of {} ranks, not {}", table->nodes.size(),
                   options_.world_size);
  auto opened = co_await open(*table);
  if (!opened) co_return fail(std::move(opened).error());
  transport_->begin_epoch(epoch);
  co_return std::move(table->nodes);
}

Task<Result<void>> ClusterWiring::open(const GangTable& table) {
  if (transport_ != nullptr) co_return Result<void>{};
  if (options_.transport == "ucx") {
    auto carrier = UcxCarrier::open(world_);
    if (!carrier) co_return fail(std::move(carrier).error().context("use the transport 'ucx'"));
    carrier_ = *std::move(carrier);
  }
  TcpOptions options{.world = world_,
                     .addresses = *this,
                     .rank = options_.rank,
                     .world_size = options_.world_size,
                     .listen = Address::tcp(table.listen, 0),
                     .heap = options_.heap,
                     .streams = options_.streams,
                     .checksums = options_.checksums,
                     .encrypt = options_.encrypt,
                     .carrier = carrier_.get()};
  if (table.key.size() != options.key.size())
    co_return fail(Code::unsupported,
                   "the head of this cluster gives jobs no key for their fabric: it is of an older "
                   "tutti, which has to be replaced first");
  std::memcpy(options.key.data(), table.key.data(), options.key.size());
  options.may_put = [begin = options_.put_begin, end = options_.put_end](uint64_t offset,
                                                                         uint64_t bytes) {
    return offset >= begin && offset <= end && bytes <= end - offset;
  };
  auto opened = co_await TcpTransport::open(std::move(options));
  if (!opened) co_return fail(opened.error().context("listen for other hosts"));
  transport_ = *std::move(opened);
  co_return Result<void>{};
}

Task<Result<void>> ClusterWiring::publish(uint64_t epoch, Address address) {
  const Instant by = deadline();
  const std::string where = fmt::format("{} {}", options_.transport, address.text());
  auto put = co_await exchange_.put(key_of(epoch, options_.rank), where, by);
  co_return put;
}

Task<Result<Address>> ClusterWiring::find(uint64_t epoch, uint32_t rank) {
  const Instant by = deadline();
  auto text = co_await exchange_.get(key_of(epoch, rank), by);
  if (!text) co_return fail(std::move(text).error());
  const size_t space = text->find(' ');
  const std::string_view transport = std::string_view(*text).substr(0, space);
  // Not worth another try: it is told to who calls.
  if (space == std::string::npos || transport != options_.transport)
    co_return fail(
        Code::unsupported,
        "rank {} uses the transport '{}', rank {} uses '{}'; choose one for all ranks, with "
        "TUTTI_FABRIC_TRANSPORT or fabric.join(transport=…)",
        rank, transport, options_.rank, options_.transport);
  co_return Address::parse(std::string_view(*text).substr(space + 1));
}

Task<void> ClusterWiring::stop() {
  if (transport_ != nullptr) co_await transport_->stop();
  if (carrier_ != nullptr) co_await carrier_->stop();
}

}  // namespace tutti
