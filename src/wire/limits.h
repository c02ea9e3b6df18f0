// What one connection may cost us. Each side tells the other the first three in its hello and holds
// it to them; a peer that goes beyond is cut off.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace tutti::wire {

struct Limits {
  // Calls in flight that the other side has opened: a slot of 8 bytes each once used, and a handler
  // while it runs. More than a host has cores many times over; the caller waits beyond it.
  uint32_t max_calls = 1024;
  // Bytes of messages (message_cost() each) per call that may come before their consumer asks.
  // Times max_calls it bounds what streams nobody reads can hold: 64 MiB.
  uint32_t stream_window = 64 * 1024;
  // One message. Whatever is larger is a stream of them.
  uint64_t max_message = 64_MiB;

  // Large messages of streams and large replies to us, received and not taken by their consumer,
  // together. A message larger than what is left waits for others to be taken, the first one never.
  uint64_t receive_budget = 64_MiB;
  // Of it, what one call may hold with messages its consumer has not taken (or one message).
  uint64_t stream_budget = 4_MiB;
  // Large requests of unary calls, from their announcement until their handlers return; the first
  // never waits. Apart from what is received, so that a handler can call back over the connection.
  // As much again of large replies that wait to be sent: beyond it no unary call is started. What
  // handlers make meanwhile comes on top; a reply can be counted only when it is there.
  uint64_t handling_budget = 64_MiB;
  // Small frames waiting to be written. Beyond it calls, replies, failures and messages wait.
  uint64_t max_queued = 4_MiB;
  // What cannot wait may go this much further: answers to control frames, refusals of what cannot
  // be started, ends of cancelled calls. Then the peer is cut off: it sends without reading.
  uint64_t max_queued_control = 1_MiB;

  // From the first byte to the last of the handshake and hello.
  Duration hello_timeout = 10s;
  // A connection that has been quiet for the interval is asked for a sign of life, and is dead
  // when none comes within the timeout.
  Duration keepalive_interval = 10s;
  Duration keepalive_timeout = 20s;
  // Of a unary call whose caller gave no deadline.
  Duration default_timeout = 60s;
};

// A message at most this long travels inside one frame with its call; a larger one is announced and
// follows in data frames, written from where it lies and received where it is wanted.
constexpr size_t kMaxInlineMessage = 16 * 1024;
// What keeping a message costs besides its bytes: a place in a queue, and an allocation. Counted as
// credit on both sides, so that empty messages are bounded too.
constexpr size_t kMessageCost = 64;
constexpr uint64_t message_cost(size_t size) { return size + kMessageCost; }
// Consumed bytes are granted again when they are half a window: the other half must hold a message.
constexpr uint32_t kSmallestWindow = 2 * message_cost(kMaxInlineMessage);
// A call's slot has 16 bits.
constexpr uint32_t kMostCalls = 65535;

// The limits as they can be told and held.
inline Limits sensible(Limits limits) {
  limits.max_calls = std::min(limits.max_calls, kMostCalls);
  limits.stream_window = std::max(limits.stream_window, kSmallestWindow);
  limits.max_message = std::max<uint64_t>(limits.max_message, kMaxInlineMessage);
  return limits;
}

}  // namespace tutti::wire
