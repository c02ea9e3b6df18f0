// What can be called: a name, and the types of what goes up and what comes down.
//
//   inline constexpr Method<PingRequest, PingReply> kPing{"agent.ping"};
//   inline constexpr StreamMethod<LogQuery, LogLines> kLogs{"agent.logs"};
//
// A method travels as a hash of its name; two names with one hash are found at registration. A
// StreamMethod serves client streaming, server streaming and both at once: each side sends as many
// messages as it likes, and the side that answers ends the call.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "wire/message.h"

namespace tutti::wire {

// FNV-1a, 64 bits: simple enough to be written down in a specification.
constexpr uint64_t method_id(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : name) {
    hash ^= static_cast<uint8_t>(letter);
    hash *= 0x100000001B3U;
  }
  return hash;
}

template <Message RequestType, Message ReplyType>
struct Method {
  using Request = RequestType;
  using Reply = ReplyType;
  std::string_view name;
  uint64_t id;
  explicit constexpr Method(std::string_view name) : name(name), id(method_id(name)) {}
};

template <Message UpType, Message DownType>
struct StreamMethod {
  using Up = UpType;      // from the side that opened the call
  using Down = DownType;  // from the side that answers it
  std::string_view name;
  uint64_t id;
  explicit constexpr StreamMethod(std::string_view name) : name(name), id(method_id(name)) {}
};

inline Error too_late_error() { return {Code::deadline, "the time allowed ran out"}; }

class Connection;

// What a handler knows about the call it answers.
struct CallContext {
  Connection& connection;  // to the caller; calls can be made back over it
  Instant deadline;        // of this host's clock; the handler is cancelled then
};

struct CallOptions {
  // A unary call without a deadline has the connection's default_timeout; a stream has none.
  Instant deadline = kNever;
  // The call this one is made for: it may not take longer either.
  const CallContext* within = nullptr;

  Instant effective_deadline() const {
    return within == nullptr || deadline < within->deadline ? deadline : within->deadline;
  }
};

}  // namespace tutti::wire
