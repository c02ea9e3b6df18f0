// Making one connection.
#pragma once

#include <memory>

#include "world/network.h"
#include "world/real/loop.h"
#include "world/real/socket_address.h"

namespace tutti {

// `wanted` is what the caller wrote, for errors.
Task<Result<std::unique_ptr<Stream>>> connect_tcp(Loop& loop, SocketAddress address,
                                                  Address wanted);
// Waits a while for a listener whose queue is full; then Code::unavailable.
Task<Result<std::unique_ptr<Stream>>> connect_unix(Loop& loop, Address address);

}  // namespace tutti
