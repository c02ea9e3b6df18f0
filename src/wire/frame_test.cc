#include "wire/frame.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tutti::wire {
namespace {

std::string frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string bytes(kFrameHeaderSize, '\0');
  bytes += payload;
  store_frame_header(as_mutable_bytes(bytes).data(), type, flags, stream, as_bytes(payload));
  return bytes;
}

class Nowhere final : public DataSink {
 public:
  Result<MutableBytes> place(const FrameHeader&) override { return MutableBytes(); }
};

class OneBuffer final : public DataSink {
 public:
  Result<MutableBytes> place(const FrameHeader& header) override {
    asked += 1;
    buffer.resize(header.length);
    return as_mutable_bytes(buffer);
  }
  std::string buffer;
  int asked = 0;
};

// Gives the bytes in pieces through room(), as a stream would.
void receive(FrameReader& reader, std::string_view bytes) {
  while (!bytes.empty()) {
    const MutableBytes room = reader.room();
    const size_t size = std::min(room.size(), bytes.size());
    std::copy_n(as_bytes(bytes).begin(), size, room.begin());
    reader.received(size);
    bytes.remove_prefix(size);
  }
}

std::string error_of(std::string bytes, uint32_t max_payload = 1024) {
  Nowhere nowhere;
  FrameReader reader(nowhere, max_payload);
  reader.append(as_bytes(bytes));
  auto result = reader.next();
  while (result && *result) result = reader.next();
  return result ? "" : result.error().text();
}

TEST_CASE("frames come out as they went in, however the bytes are cut") {
  std::string bytes;
  std::vector<std::string> payloads = {"", "x", std::string(300, 'y'), std::string(5000, 'z')};
  for (uint32_t i = 0; i < payloads.size(); ++i)
    bytes += frame(FrameType::message, FrameFlags::last, i, payloads[i]);
  for (const size_t step : {1UL, 7UL, 16UL, 1000UL, bytes.size()}) {
    Nowhere nowhere;
    FrameReader reader(nowhere, kMaxFramePayload);
    size_t seen = 0;
    for (size_t at = 0; at < bytes.size(); at += step) {
      receive(reader, std::string_view(bytes).substr(at, step));
      for (;;) {
        auto next = reader.next();
        REQUIRE(next.has_value());
        if (!*next) break;
        CHECK((*next)->stream == seen);
        CHECK((*next)->type == FrameType::message);
        CHECK(as_text((*next)->payload) == payloads[seen]);
        ++seen;
      }
    }
    CHECK(seen == payloads.size());
    CHECK(!reader.mid_frame());
    CHECK(reader.offset() == bytes.size());
  }
}

TEST_CASE("a large payload is received where it belongs") {
  OneBuffer sink;
  FrameReader reader(sink, kMaxFramePayload);
  const std::string payload(100'000, 'p');
  const std::string bytes = frame(FrameType::data, 0, 9, payload);
  receive(reader, std::string_view(bytes).substr(0, 50));
  CHECK(!reader.next().value());
  CHECK(sink.asked == 1);
  CHECK(reader.room().data() == as_mutable_bytes(sink.buffer).data() + 50 - kFrameHeaderSize);
  receive(reader, std::string_view(bytes).substr(50));
  auto whole = reader.next().value();
  REQUIRE(whole);
  CHECK(whole->in_place);
  CHECK(whole->payload.data() == as_bytes(sink.buffer).data());
  CHECK(sink.buffer == payload);
}

TEST_CASE("bytes from elsewhere reach a payload in place too") {
  OneBuffer sink;
  FrameReader reader(sink, kMaxFramePayload);
  const std::string payload(50'000, 'p');
  const std::string bytes =
      frame(FrameType::data, 0, 9, payload) + frame(FrameType::ping, 0, 0, "");
  for (size_t at = 0; at < bytes.size(); at += 999) {
    reader.append(as_bytes(std::string_view(bytes).substr(at, 999)));
    auto next = reader.next().value();
    if (!next) continue;
    CHECK(sink.buffer == payload);
    CHECK(reader.next().value()->type == FrameType::ping);
  }
  CHECK(sink.asked == 1);
  CHECK(!reader.mid_frame());
}

TEST_CASE("a changed bit anywhere in a frame is noticed") {
  const std::string good = frame(FrameType::request, FrameFlags::opener, 77, "sixteen bytes ok");
  CHECK(error_of(good).empty());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Nowhere nowhere;
    FrameReader reader(nowhere, 1024);
    reader.append(as_bytes(bad));
    auto next = reader.next();
    // A longer length only makes the reader wait for bytes that never come.
    CHECK((!next || !*next));
  }
}

TEST_CASE("errors say what is wrong and at which byte") {
  const std::string good = frame(FrameType::ping, 0, 0, "");
  std::string bad = frame(FrameType::ping, 0, 0, "abc");
  bad.back() = 'd';
  CHECK(error_of(good + bad).find("frame at byte 16: the checksum of a ping of 3 bytes") == 0);
  CHECK(error_of(good + frame(static_cast<FrameType>(99), 0, 0, ""))
            .find("frame at byte 16: 99 is not a frame type") == 0);
  CHECK(error_of(frame(FrameType::ping, 64, 0, "")).find("flags 0x40") != std::string::npos);
  CHECK(error_of(frame(FrameType::data, 0, 0, std::string(1025, 'x')))
            .find("a data of 1025 bytes is over the limit of 1024") != std::string::npos);
}

TEST_CASE("a length over the limit is refused before its bytes come") {
  std::string header = frame(FrameType::data, 0, 0, std::string(2000, 'x'));
  CHECK(!error_of(header.substr(0, kFrameHeaderSize)).empty());
}

TEST_CASE("a quiet reader shrinks its buffer again") {
  Nowhere nowhere;
  FrameReader reader(nowhere, kMaxFramePayload);
  const std::string ping = frame(FrameType::ping, 0, 0, "");
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += ping;
  receive(reader, many);
  while (reader.next().value()) continue;
  CHECK(reader.room().size() == 64 * 1024);
  for (int i = 0; i < 20; ++i) {
    receive(reader, ping);
    while (reader.next().value()) continue;
  }
  CHECK(reader.room().size() == 64);
}

}  // namespace
}  // namespace tutti::wire
