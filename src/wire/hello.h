// The first frame each way: who we are, which versions we speak, what we are ready to receive.
//
// The side that connected speaks first. The other answers with its own hello, or with a reject
// frame that says in words why not, and closes. Bytes that are no hello get no answer at all.
#pragma once

#include <functional>
#include <string>

#include "wire/limits.h"
#include "wire/link.h"
#include "wire/rules.h"
#include "world/clock.h"

namespace tutti::wire {

constexpr uint32_t kProtocolVersion = 1;

struct ConnectionOptions {
  Identity self;
  Limits limits;
  // Where the other side is, for messages: "10.0.0.7:7000".
  std::string address;
  // Whether a peer of our cluster may speak with us; everyone, when there is no rule. An error's
  // text is the reason the peer is told.
  std::function<Result<void>(const Identity&)> admit;
  uint32_t lowest_version = kProtocolVersion;
  uint32_t highest_version = kProtocolVersion;
};

// Who is at the other end, and what it said it is ready to receive.
struct Peer {
  Identity identity;
  std::string address;
  std::string program_version;
  uint32_t protocol = 0;
  uint32_t max_calls = 0;
  uint32_t stream_window = 0;
  uint64_t max_message = 0;

  std::string text() const;  // "agent node17 (10.0.0.7:7000)"
};

// The seal's handshake and the hellos, within limits.hello_timeout. When a reject was sent or
// received, the error is its code and reason.
Task<Result<Peer>> greet(Clock& clock, Link& link, FrameReader& reader, Side side,
                         const ConnectionOptions& options);

// What a reject frame says; `who` sent it. Never Code::cancelled: that is for our own side to say.
Error rejection(Bytes payload, std::string_view who);

}  // namespace tutti::wire
