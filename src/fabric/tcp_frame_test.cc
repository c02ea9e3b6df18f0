#include "fabric/tcp_frame.h"

#include <doctest/doctest.h>

#include "fabric/tcp_fixture_test.h"
#include "fabric/tcp_seal.h"

namespace tutti::tcp {
namespace {

Frame sample(FrameType type) {
  Frame frame{.type = type, .priority = Priority::bulk, .id = 42};
  switch (type) {
    case FrameType::message:
      frame.scope = 5;
      frame.number = 6;
      frame.length = 7;
      break;
    case FrameType::put: frame.scope = 100; [[fallthrough]];
    case FrameType::data:
      frame.offset = kChunkBytes;
      frame.total = kChunkBytes + 9;
      frame.length = 9;
      break;
    default: break;
  }
  return frame;
}

Result<Frame> there_and_back(const Frame& frame) {
  std::array<std::byte, kFrameBytes> bytes;
  store_frame(frame, bytes.data());
  return load_frame(bytes.data());
}

TEST_CASE("a frame is read as it was written") {
  for (const FrameType type :
       {FrameType::message, FrameType::put, FrameType::data, FrameType::stop, FrameType::pong}) {
    const Frame frame = sample(type);
    CHECK(there_and_back(frame).value() == frame);
  }
}

TEST_CASE("a frame that makes no sense is refused") {
  const auto wrong = [](const Frame& frame) {
    const auto read = there_and_back(frame);
    return !read && read.error().code() == Code::corrupt;
  };
  Frame frame = sample(FrameType::message);
  frame.length = kSmallBytes + 1;
  CHECK(wrong(frame));
  frame = sample(FrameType::message);
  frame.offset = 1;
  CHECK(wrong(frame));
  for (const FrameType type : {FrameType::put, FrameType::data}) {
    frame = sample(type);
    frame.length = 8;
    CHECK(wrong(frame));
    frame = sample(type);
    frame.offset = 1;
    CHECK(wrong(frame));
    frame = sample(type);
    frame.offset = 4 * kChunkBytes;
    CHECK(wrong(frame));
    frame = sample(type);
    frame.total = 0;
    CHECK(wrong(frame));
    frame = sample(type);
    frame.total = kMaxMessage + 1;
    CHECK(wrong(frame));
  }
  frame = sample(FrameType::stop);
  frame.length = 1;
  CHECK(wrong(frame));
  frame.type = static_cast<FrameType>(0);
  CHECK(wrong(frame));
  frame.type = static_cast<FrameType>(kFrameTypes + 1);
  CHECK(wrong(frame));
  frame = sample(FrameType::stop);
  frame.priority = static_cast<Priority>(3);
  CHECK(wrong(frame));
}

// One frame as bytes on a connection.
std::string sealed(Sealer& sealer, const Frame& frame, std::string_view payload) {
  std::string bytes(sealer.header_bytes() + payload.size(), '\0');
  std::byte* at = as_mutable_bytes(bytes).data();
  sealer.seal(frame, as_bytes(payload), at, at + sealer.header_bytes());
  if (!sealer.encrypts()) payload.copy(bytes.data() + sealer.header_bytes(), payload.size());
  return bytes;
}

Result<std::string> opened(Opener& opener, std::string bytes, size_t piece) {
  TRY(const Frame frame, opener.open(as_bytes(bytes).data()));
  std::string payload = bytes.substr(opener.header_bytes());
  if (frame.length != payload.size()) return fail(Code::corrupt, "another length");
  MutableBytes left = as_mutable_bytes(payload);
  while (!left.empty()) {
    const size_t now = std::min(piece, left.size());
    opener.absorb(left.first(now));
    left = left.subspan(now);
  }
  if (!payload.empty()) TRY_DO(opener.finish());
  return payload;
}

TEST_CASE("what is sealed is opened, in order, however its bytes come") {
  for (const Protection protection :
       {Protection{true, false}, Protection{false, false}, Protection{false, true}}) {
    Sealer sealer(test_key(3), protection);
    Opener opener(test_key(3), protection);
    for (const size_t size : {0, 1, 15, 16, 17, 1000, 10'000}) {
      const std::string text = pattern(size, size);
      const std::string bytes = sealed(sealer, sample(FrameType::message), text);
      if (protection.encrypt && size > 15) CHECK(bytes.find(text) == std::string::npos);
      CHECK(opened(opener, bytes, 1 + size / 3).value() == text);
    }
  }
}

TEST_CASE("no damaged bit, wrong key or frame out of order is believed") {
  for (const Protection protection : {Protection{true, false}, Protection{false, true}}) {
    const std::string text = pattern(50, 1);
    const std::string bytes = [&] {
      Sealer sealer(test_key(3), protection);
      return sealed(sealer, sample(FrameType::message), text);
    }();
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      Opener opener(test_key(3), protection);
      CHECK(opened(opener, damaged, 50).error().code() == Code::corrupt);
    }
    Opener other(test_key(4), protection);
    CHECK(!opened(other, bytes, 50));
    Opener twice(test_key(3), protection);
    CHECK(opened(twice, bytes, 50).has_value());
    CHECK(!opened(twice, bytes, 50));
  }
}

}  // namespace
}  // namespace tutti::tcp
