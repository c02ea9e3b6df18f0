#include "base/hash.h"

#include <doctest/doctest.h>

#include <string>

#include "base/hash_kernel.h"

namespace tutti {
namespace {

// Bytes that do not repeat with any stride XXH3 uses.
std::string sample(size_t count) {
  std::string text(count, '\0');
  uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

// Lengths on both sides of every switch of algorithm inside XXH3.
constexpr size_t kLengths[] = {0,   1,   3,   4,    8,    9,    16,   17,   128,  129,
                               240, 241, 256, 1023, 1024, 1025, 4096, 4097, 65537};

TEST_CASE("hashes are those that Python's xxhash 4.1.0 gives") {
  CHECK(hash64({}) == 0x2d06800538d394c2);
  CHECK(hash64(as_bytes("tutti")) == 0x8d279812eff8a92d);
  CHECK(hash64(as_bytes(sample(4097))) == 0xa0336bc14e166395);
  CHECK(hash64(as_bytes(sample(4097)), 7) == 0xa1c0ac6795ec7086);
  CHECK(hash128({}).hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(hash128(as_bytes("tutti")).hex() == "19c2d1d5419d158d1160fc3eea791c59");
  CHECK(hash128(as_bytes(sample(4097))).hex() == "7f4f13f3aec0e15ba0336bc14e166395");
}

TEST_CASE("a stream hashes the same however it is cut") {
  for (const size_t length : kLengths) {
    const std::string text = sample(length);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{256}, size_t{1000}}) {
      CAPTURE(length);
      CAPTURE(piece);
      Hasher hasher;
      for (size_t at = 0; at < length; at += piece) {
        hasher.update(as_bytes(std::string_view(text).substr(at, piece)));
      }
      CHECK(hasher.digest64() == hash64(as_bytes(text)));
      CHECK(hasher.digest128() == hash128(as_bytes(text)));
    }
  }
}

TEST_CASE("a seed counts for pieces as for the whole") {
  const std::string text(5000, 'x');
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    Hasher hasher;
    hasher.reset(seed);
    for (size_t at = 0; at < text.size(); at += 700) hasher.update(as_bytes(text.substr(at, 700)));
    CHECK(hasher.digest64() == hash64(as_bytes(text), seed));
  }
}

TEST_CASE("a digest does not end the stream, and a reset begins it anew") {
  Hasher hasher;
  hasher.update(as_bytes("tut"));
  CHECK(hasher.digest64() == hash64(as_bytes("tut")));
  hasher.update(as_bytes("ti"));
  CHECK(hasher.digest64() == hash64(as_bytes("tutti")));
  hasher.reset();
  CHECK(hasher.digest128() == hash128({}));
}

TEST_CASE("a seed changes the hash") {
  CHECK(hash64(as_bytes("tutti"), 1) != hash64(as_bytes("tutti")));
  CHECK(hash64(as_bytes("tutti"), 0) == hash64(as_bytes("tutti")));
}

TEST_CASE("SSE2 and AVX2 give the same bits") {
  if (!__builtin_cpu_supports("avx2")) return;
  for (const size_t length : kLengths) {
    const std::string text = sample(length);
    CAPTURE(length);
    CHECK(kHashSse2.hash64(text.data(), length, 5) == kHashAvx2.hash64(text.data(), length, 5));
    uint64_t words[4];
    kHashSse2.hash128(text.data(), length, &words[0], &words[1]);
    kHashAvx2.hash128(text.data(), length, &words[2], &words[3]);
    CHECK(words[0] == words[2]);
    CHECK(words[1] == words[3]);
  }
}

}  // namespace
}  // namespace tutti
