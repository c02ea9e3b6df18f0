// What one peer may cost us, and the sizes of the protocol. docs/fabric.md has them in a table.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace tutti::tcp {

constexpr uint16_t kVersion = 2;
constexpr uint32_t kMaxStreams = 8;  // more never measured faster

// Small messages travel at once with their tag; what is larger waits for its receiver, so that it
// is received where it belongs. Copying 16 KiB is cheaper than asking for it.
constexpr uint64_t kSmallBytes = 16_KiB;
// Large ones are cut into these: small enough for a core's cache, where it is summed and copied,
// and for what is urgent to wait for. Every piece but the last is of this size: a part of the
// protocol.
constexpr uint64_t kChunkBytes = 512_KiB;
// Tags of this scope are the transport's own: that a scope, their number, is refused.
constexpr uint64_t kRefusalScope = ~uint64_t{0};
constexpr Duration kRefusalPatience = 1s;  // for those that cannot be reached
// One message, put or get.
constexpr uint64_t kMaxMessage = uint64_t{1} << 48;
// Small frames that go out together, before a piece of a large message.
constexpr size_t kBatchBytes = 64_KiB;

// Small messages of one rank that nobody receives yet: of 4,096 ranks, 64 GiB at the very worst.
constexpr uint64_t kMaxUnexpectedBytes = 16_MiB;
constexpr uint64_t kMaxUnexpected = 65'536;
// Large receives, gets and puts of one rank at once.
constexpr uint64_t kMaxOperations = 65'536;
// Answers that wait to be written: whoever makes us say more without reading is cut off.
constexpr size_t kMaxQueuedAnswers = 16_MiB;
// Words of an error that travel, and errors that are kept for who asks again.
constexpr size_t kMaxErrorText = 1024;
constexpr size_t kMaxKeptErrors = 1024;

// From the first byte of a connection until it has proved itself.
constexpr Duration kHandshakeTimeout = 10s;
// Connections that may be proving themselves at once: all streams of many ranks after a restart.
constexpr uint32_t kMaxGreeting = 4096;
// Between two tries to connect: short after a glitch, then doubled.
constexpr Duration kFirstPause = 1ms;
constexpr Duration kLongestPause = 500ms;
// A link that was good for so long begins again with the shortest pause.
constexpr Duration kGoodLink = 1s;
// Who waits for an answer asks for a sign of life so often, and remakes a link that was silent for
// longer: TCP alone would try for a quarter of an hour.
constexpr Duration kPingInterval = 3s;
constexpr Duration kLongestSilence = 10s;
// A large message that nobody takes is told so often: if the receiver expects a small one, both
// err.
constexpr Duration kProbeInterval = 1s;
// Before a transport stops, for what others have to know of what was done: they may be gone.
constexpr Duration kPartingTime = 1s;
constexpr Duration kPartingPause = 1ms;
// Of one direction, by one AES key: far below what GCM bears (TLS allows about as much).
constexpr uint64_t kBytesPerKey = uint64_t{1} << 38;

}  // namespace tutti::tcp
