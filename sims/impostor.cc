#include "sims/impostor.h"

#include "cluster/exchange_wire.h"
#include "world/sim/host.h"

namespace tutti::sims {
namespace {

constexpr Duration kPatience = 1s;

Task<Result<ExchangeAnswer>> ask(SimHost& host, ExchangeRequest request, Address address) {
  auto stream = co_await host.network().connect(std::move(address));
  if (!stream) co_return fail(std::move(stream).error());
  const std::string encoded = encode(request);
  const Bytes bytes = as_bytes(encoded);
  auto written = co_await (*stream)->write(bytes);
  if (!written) co_return fail(std::move(written).error());
  co_return co_await read_answer(**stream);
}

}  // namespace

Task<void> publish_from_old_epoch(SimHost& host, Life old, std::string exchange) {
  ExchangeRequest request{
      .op = ExchangeRequest::Op::put, .job = old.job, .life = old.epoch, .gang_epoch = 0};
  request.process = old.process;
  request.round = 1;
  request.name = fmt::format("stale {}", old.process);
  request.value = "of an epoch that is over";
  const Instant patience = host.clock().now() + kPatience;
  Task<Result<ExchangeAnswer>> asking =
      ask(host, std::move(request), Address::unix_socket(std::move(exchange)));
  auto answer = co_await with_deadline(host.clock(), patience, std::move(asking));
  if (!answer) co_return;  // there is no agent now
  host.simulator().check(!answer->ok,
                         "process {} of job {} published from epoch {:x}, which is over",
                         old.process, old.job, old.epoch);
  if (answer->code == Code::denied) TUTTI_PROBE("stage: a value of an old epoch was refused");
}

}  // namespace tutti::sims
