// From the name of a host to its addresses.
//
// Numbers need no looking up. A name goes to getaddrinfo(3) on a thread of its own, which is left
// behind when the wait is cancelled: a name server that does not answer holds up nobody, neither
// other lookups nor the end of the process.
#pragma once

#include <vector>

#include "world/network.h"
#include "world/real/loop.h"
#include "world/real/socket_address.h"

namespace tutti {

// At least one address; Code::not_found for a name nobody knows, Code::unavailable when that could
// not be found out, Code::exhausted with too many lookups at once.
Task<Result<std::vector<SocketAddress>>> resolve(Loop& loop, Address address);

}  // namespace tutti
