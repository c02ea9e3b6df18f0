// A connection whose other side is written by hand, frame by frame. For tests only.
#pragma once

#include <string>
#include <vector>

#include "wire/testing.h"
#include "wire/wire.pb.h"

namespace tutti::wire {

inline std::string u64(uint64_t value) {
  std::string bytes(sizeof value, '\0');
  store_le(as_mutable_bytes(bytes).data(), value);
  return bytes;
}

inline constexpr uint32_t stream_of(uint16_t slot, uint16_t generation = 1) {
  return uint32_t{generation} << 16 | slot;
}

// The other side opens a call with these flags.
inline std::string open_call(uint64_t method, uint32_t stream, uint8_t flags = 0,
                             std::string_view message = {}, Duration timeout = 0s) {
  const std::string head = u64(method) + u64(static_cast<uint64_t>(to_ns(timeout)));
  return frame(FrameType::request, flags | FrameFlags::opener, stream, head + std::string(message));
}
inline std::string unary(uint64_t method, uint32_t stream, std::string_view message) {
  return open_call(method, stream, FrameFlags::message | FrameFlags::last, message);
}

struct RawPeer {
  struct Heard {
    FrameType type;
    uint8_t flags;
    uint32_t stream;
    std::string payload;
  };

  // `side` is that of the connection under test.
  explicit RawPeer(Side side, Limits limits = {}) {
    proto::Hello hello;
    hello.set_lowest_version(1);
    hello.set_highest_version(1);
    hello.set_name("raw");
    hello.set_max_calls(kMostCalls);
    hello.set_stream_window(kSmallestWindow);
    hello.set_max_message(64_MiB);
    ConnectionOptions options{.limits = limits, .address = "raw:1"};
    root.spawn(run(*this, side, std::move(options)));
    say(frame(FrameType::hello, 0, 0, "TUTTI\r\n\x01" + hello.SerializeAsString()));
    REQUIRE(connection);
    hear();
  }
  ~RawPeer() {
    lose();
    clock.advance(1min);
    CHECK(root.size() == 0);
    CHECK(calls.size() == 0);
  }

  static Task<void> run(RawPeer& peer, Side side, ConnectionOptions options) {
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(peer.in, peer.out);
    std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
    auto greeted = co_await Connection::greet(peer.clock, std::move(stream), std::move(seal), side,
                                              &peer.service.methods, std::move(options));
    REQUIRE(greeted.has_value());
    peer.connection = std::move(*greeted);
    auto ended = co_await peer.connection->run();
    peer.ended = ended ? "well" : ended.error().text();
  }
  static Task<void> note_call(RawPeer& peer, Method<Blob, Blob> method, std::string text,
                              CallOptions options) {
    const Blob request = blob_of(text);
    auto reply = co_await peer.connection->call(method, request, options);
    peer.codes.push_back(reply ? std::optional<Code>() : reply.error().code());
    peer.log.push_back(reply ? text_of(*reply) : reply.error().text());
  }

  void say(std::string_view bytes) {
    in->inject(bytes);
    clock.advance(0ms);
  }
  // What the connection said since the last time.
  std::vector<Heard> hear() {
    std::vector<Heard> frames;
    const std::string bytes = out->take();
    for (size_t at = 0; at + kFrameHeaderSize <= bytes.size();) {
      const FrameHeader header = FrameHeader::load(as_bytes(bytes).data() + at);
      frames.push_back({header.type, header.flags, header.stream,
                        bytes.substr(at + kFrameHeaderSize, header.length)});
      at += kFrameHeaderSize + header.length;
    }
    return frames;
  }
  // After the time a connection has to say why it breaks off.
  const std::string& how_it_ended() {
    clock.advance(5s);
    return ended;
  }
  void lose() {
    in->reset();
    out->reset();
    clock.advance(0ms);
  }
  void call(Method<Blob, Blob> method, std::string text, CallOptions options = {}) {
    calls.spawn(note_call(*this, method, std::move(text), options));
    clock.advance(0ms);
  }

  Executor executor;
  ManualClock clock;
  std::shared_ptr<MemoryPipe> in = std::make_shared<MemoryPipe>(SIZE_MAX);
  std::shared_ptr<MemoryPipe> out = std::make_shared<MemoryPipe>(SIZE_MAX);
  TestService service{clock};
  std::unique_ptr<Connection> connection;
  std::string ended;  // how the connection ended, when it has
  std::vector<std::string> log;
  std::vector<std::optional<Code>> codes;
  Scope root{Scope::Root{}};
  Scope calls{Scope::Root{}};
};

}  // namespace tutti::wire
