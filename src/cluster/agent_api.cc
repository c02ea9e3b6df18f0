#include "cluster/agent_api.h"

#include "cluster/agent_looks.h"
#include "wire/connection.h"

namespace tutti {
namespace {

// Of one host: everyone who follows a job has one.
constexpr uint32_t kMostClients = 1'024;

}  // namespace

AgentApi::AgentApi(World& world, wire::Seals& seals, Agent& agent, wire::Identity self)
    : world_(world), seals_(seals), agent_(agent), self_(std::move(self)) {
  methods_.add(api::kOutput, *this, &AgentApi::output);
  methods_.add(api::kAgentLook, *this, &AgentApi::look);
  methods_.add(api::kAgentPs, *this, &AgentApi::ps);
}

Task<Result<void>> AgentApi::serve(Listener& listener) {
  wire::SealRequest request{
      .kind = listener.address().kind, .side = wire::Side::accepting, .expected = {}};
  request.expected.roles = {wire::Role::user};
  wire::ServerOptions options{.connection = {.self = self_, .limits = api::limits()},
                              .max_connections = kMostClients,
                              .max_greeting = kMostClients / 4};
  wire::Server server(
      world_.clock(), methods_, [this, request] { return seals_.make(request); },
      std::move(options));
  co_return co_await server.serve(listener);
}

// Of a job that is here, or was; one that is not known yet is on its way.
Task<Result<std::shared_ptr<OutputSpool>>> AgentApi::spool_of(uint64_t job) {
  Alarm alarm(world_.clock());
  agent_.watch_jobs(alarm);
  Result<void> woken;
  while (woken) {
    if (auto spool = agent_.output_of(job)) {
      agent_.unwatch_jobs(alarm);
      co_return spool;
    }
    const std::string folder = agent_.job_folder(job);
    auto left = co_await world_.disk().info(folder);
    if (agent_.output_of(job) != nullptr) continue;
    if (left || agent_.has_ended(job)) {
      agent_.unwatch_jobs(alarm);
      auto spool = std::make_shared<OutputSpool>(world_, folder);
      const JobReaders readers = co_await JobReaders::left_in(world_, folder);
      spool->set_readers(readers);
      spool->close();
      co_return spool;
    }
    woken = co_await alarm.until(kNever);
  }
  agent_.unwatch_jobs(alarm);
  co_return fail(woken.error());
}

Task<Result<void>> AgentApi::output(wire::CallContext& call, OutputStream& stream) {
  auto request = co_await stream.recv();
  if (!request) co_return fail(std::move(request).error());
  if (!*request) co_return fail(Code::invalid, "there is no job in the call");
  cluster::OutputRequest from = std::move(**request);
  auto spool = co_await spool_of(from.job());
  if (!spool) co_return fail(std::move(spool).error());
  CO_TRY_DO((*spool)->readers().check(from.job(), call.connection.peer().identity.name));
  co_return co_await send_all(stream, **spool, std::move(from));
}

Task<Result<void>> AgentApi::send_all(OutputStream& stream, OutputSpool& spool,
                                      cluster::OutputRequest from) {
  while (true) {
    auto piece = co_await spool.read(from);
    if (!piece) co_return fail(std::move(piece).error());
    from.set_place(piece->place());
    from.set_event(piece->event());
    from.set_life(piece->life());
    auto sent = co_await stream.send(*piece);
    if (!sent) co_return fail(std::move(sent).error());
    if (piece->over()) co_return {};
  }
}

Task<Result<void>> AgentApi::look(wire::CallContext&, LookStream& stream) {
  auto request = co_await stream.recv();
  if (!request) co_return fail(std::move(request).error());
  if (!*request) co_return fail(Code::invalid, "there is no job in the call");
  const cluster::LookRequest wanted = std::move(**request);
  auto looks = co_await look_at_job(world_, agent_, wanted);
  if (!looks) co_return fail(std::move(looks).error());
  for (const cluster::LookPiece& piece : in_pieces(std::move(*looks))) {
    auto sent = co_await stream.send(piece);
    if (!sent) co_return fail(std::move(sent).error());
  }
  co_return {};
}

Task<Result<cluster::HostInfos>> AgentApi::ps(wire::CallContext&,
                                              const cluster::PsRequest& request) {
  co_return agent_.processes(request.job(), request.usage());
}

}  // namespace tutti
