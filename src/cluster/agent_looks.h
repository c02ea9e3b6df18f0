// An agent's answer to who asks what the processes of a job do here, or did.
#pragma once

#include <vector>

#include "cluster/agent.h"

namespace tutti {

// Two looks, kLookSpan apart, at what runs: who gets on, and who uses a processor. Of a job that is
// over, or when that is asked for, what was kept. Nothing: the job is not known here.
constexpr Duration kLookSpan = 250ms;
Task<Result<std::vector<cluster::ProcessLook>>> look_at_job(World& world, Agent& agent,
                                                            cluster::LookRequest request);

// At least one, each small enough for a message.
std::vector<cluster::LookPiece> in_pieces(std::vector<cluster::ProcessLook> looks);

}  // namespace tutti
