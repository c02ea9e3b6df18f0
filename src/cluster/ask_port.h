// One look at a service's port on this host.
#pragma once

#include <string_view>

#include "cluster/job.pb.h"
#include "world/world.h"

namespace tutti {

// Connects, and with a path asks for it by HTTP. Ends by the deadline, and reads no more than
// kMostReplyBytes. The error says why the service is not well.
constexpr size_t kMostReplyBytes = 64 << 10;
Task<Result<void>> ask_port(World& world, job::Health health, Instant deadline);

// Whether what a server answered, or the beginning of it, is HTTP/1 and says 2xx.
Result<void> judge_http_reply(std::string_view reply);

}  // namespace tutti
