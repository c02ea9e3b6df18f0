// An agent's server for users: what jobs print on its host, and what runs there.
#pragma once

#include "cluster/agent.h"
#include "cluster/api.h"
#include "wire/methods.h"
#include "wire/server.h"

namespace tutti {

class AgentApi {
 public:
  // All of them outlive it.
  AgentApi(World& world, wire::Seals& seals, Agent& agent, wire::Identity self);

  // Until cancelled, on as many listeners as there are calls.
  Task<Result<void>> serve(Listener& listener);

 private:
  using OutputStream = wire::ServerStream<cluster::OutputRequest, cluster::OutputPiece>;
  Task<Result<void>> output(wire::CallContext& call, OutputStream& stream);
  using LookStream = wire::ServerStream<cluster::LookRequest, cluster::LookPiece>;
  Task<Result<void>> look(wire::CallContext& call, LookStream& stream);
  Task<Result<cluster::HostInfos>> ps(wire::CallContext& call, const cluster::PsRequest& request);
  Task<Result<std::shared_ptr<OutputSpool>>> spool_of(uint64_t job);
  Task<Result<void>> send_all(OutputStream& stream, OutputSpool& spool,
                              cluster::OutputRequest from);

  World& world_;
  wire::Seals& seals_;
  Agent& agent_;
  wire::Identity self_;
  wire::Methods methods_;
};

}  // namespace tutti
