#include "cluster/sparse.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti {
namespace {

constexpr size_t kLine = 64;
constexpr int kLooks = 4;
constexpr size_t kPieceHeader = 8;

using Line = std::array<std::byte, kLine>;

// Word by word: no word is torn, and two equal looks at a line are one that nobody wrote between.
Line read_line(const std::byte* shared, size_t bytes) {
  Line line{};
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(shared + at), __ATOMIC_ACQUIRE);
    std::memcpy(line.data() + at, &word, sizeof word);
  }
  for (; at < bytes; ++at) line[at] = shared[at];
  return line;
}

Line read_steadily(const std::byte* shared, size_t bytes) {
  Line line = read_line(shared, bytes);
  for (int look = 1; look < kLooks; ++look) {
    const Line again = read_line(shared, bytes);
    if (again == line) break;
    line = again;
  }
  return line;
}

void append_u32(std::string& to, size_t value) {
  std::array<std::byte, sizeof(uint32_t)> bytes;
  store_le(bytes.data(), static_cast<uint32_t>(value));
  to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

std::string pack_sparse(const std::byte* shared, size_t bytes) {
  std::string packed;
  append_u32(packed, bytes);
  size_t piece = 0;  // where the size of the piece stands that is being added to; 0: none is
  for (size_t at = 0; at < bytes; at += kLine) {
    const size_t size = std::min(kLine, bytes - at);
    const Line line = read_steadily(shared + at, size);
    if (line == Line{}) {
      piece = 0;
      continue;
    }
    if (piece == 0) {
      append_u32(packed, at);
      piece = packed.size();
      append_u32(packed, 0);
    }
    packed.append(reinterpret_cast<const char*>(line.data()), size);
    const auto so_far = static_cast<uint32_t>(packed.size() - piece - sizeof(uint32_t));
    store_le(as_mutable_bytes(packed).data() + piece, so_far);
  }
  return packed;
}

Result<std::string> unpack_sparse(Bytes packed, size_t most) {
  const auto refuse = [] { return fail(Code::corrupt, "these are no packed bytes"); };
  if (packed.size() < sizeof(uint32_t)) return refuse();
  const size_t size = load_le<uint32_t>(packed.data());
  if (size > most) return refuse();
  std::string bytes(size, '\0');
  packed = packed.subspan(sizeof(uint32_t));
  while (!packed.empty()) {
    if (packed.size() < kPieceHeader) return refuse();
    const size_t offset = load_le<uint32_t>(packed.data());
    const size_t count = load_le<uint32_t>(packed.data() + sizeof(uint32_t));
    packed = packed.subspan(kPieceHeader);
    if (count > packed.size() || offset > size || count > size - offset) return refuse();
    if (count != 0) std::memcpy(bytes.data() + offset, packed.data(), count);
    packed = packed.subspan(count);
  }
  return bytes;
}

}  // namespace tutti
