// Hands a connection that has proved itself over to a carrier (world/carrier.h): both ends say
// where theirs is, sealed with the keys of the handshake, so that nobody else can lead them
// elsewhere.
//
//   words   "TUTTICAR" 8, length u32, where 1 to 64 KiB, HMAC of the carrier's name and all that 32
#pragma once

#include <memory>

#include "fabric/tcp_seal.h"
#include "world/carrier.h"
#include "world/network.h"

namespace tutti::tcp {

// `out` is the key of what we say, `in` of what the other side does.
Task<Result<std::unique_ptr<Stream>>> carried(Carrier& carrier, std::unique_ptr<Stream> connection,
                                              Key out, Key in);

}  // namespace tutti::tcp
