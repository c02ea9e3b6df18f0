// The Seal of Unix sockets: the kernel says which user is at the other end, and nothing travels but
// what is said. Only our own user and root may call us; root may call anybody.
#pragma once

#include <sys/types.h>

#include <memory>

#include "wire/rules.h"
#include "wire/seal.h"

namespace tutti::wire {

// The identity it gives is the user's number ("uid 1000"), with role user and no cluster: what a
// process of our own user says of itself in its hello is as good as what we say.
std::unique_ptr<Seal> make_unix_seal(uid_t own_uid, Side side);

}  // namespace tutti::wire
