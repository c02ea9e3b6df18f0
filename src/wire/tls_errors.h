// What went wrong in TLS, in words a person can act on. For tls*.cc only.
#pragma once

#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/rules.h"

namespace tutti::wire {

struct TlsMoment {
  Side side = Side::connecting;
  bool certificate_shown = false;  // ours, so that an alert can be about it
  int64_t now_unix_s = 0;
};

// From what SSL_get_error says and the first entry of OpenSSL's error queue.
Error tls_error(int kind, unsigned long cause, const Claim& ours, const TlsMoment& moment);

// Looks at bytes of a handshake before OpenSSL does: the end of the stream, something that is not
// TLS at all, more than any honest peer sends. `before` counts the bytes that came earlier.
std::optional<Error> check_received(Bytes received, size_t before, Side side);

}  // namespace tutti::wire
