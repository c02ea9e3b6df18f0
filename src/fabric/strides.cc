#include "fabric/strides.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace tutti {

uint64_t Strides::bytes() const {
  uint64_t all = run;
  for (uint32_t i = 0; i < loop_count; ++i) all *= loops[i].count;
  return all;
}

void Strides::repeat(uint64_t count, uint64_t stride) {
  if (count == 1) return;
  if (loop_count == 0 && stride == run) {
    run *= count;
    return;
  }
  Loop* inner = loop_count == 0 ? nullptr : &loops[loop_count - 1];
  if (inner != nullptr && stride == inner->count * inner->stride) {
    inner->count *= count;
    return;
  }
  TUTTI_ASSERT(loop_count < kMostLoops, "a tensor has fewer dimensions");
  loops[loop_count++] = {count, stride};
}

bool Strides::fits(uint64_t all, uint64_t bytes) const {
  using Wide = unsigned __int128;
  if (run == 0 || loop_count > kMostLoops) return false;
  Wide end = Wide{offset} + run;
  Wide sum = run;
  for (uint32_t i = 0; i < loop_count; ++i) {
    if (loops[i].count == 0) return false;
    end += Wide{loops[i].count - 1} * loops[i].stride;
    sum *= loops[i].count;
    if (end > all || sum > bytes) return false;
  }
  return end <= all && sum <= all && sum == bytes;
}

void Strides::gather(const std::byte* from, uint64_t first, MutableBytes into) const {
  uint64_t skipped = first % run;
  uint64_t rest = first / run;
  std::array<uint64_t, kMostLoops> at{};
  uint64_t place = offset;
  for (uint32_t i = 0; i < loop_count; ++i) {
    at[i] = rest % loops[i].count;
    rest /= loops[i].count;
    place += at[i] * loops[i].stride;
  }
  for (uint64_t done = 0; done < into.size();) {
    const uint64_t some = std::min(run - skipped, into.size() - done);
    std::memcpy(into.data() + done, from + place + skipped, some);
    done += some;
    skipped = 0;
    for (uint32_t i = 0; i < loop_count; ++i) {
      place += loops[i].stride;
      if (++at[i] < loops[i].count) break;
      place -= loops[i].stride * loops[i].count;
      at[i] = 0;
    }
  }
}

std::string Strides::encode() const {
  std::string text(8 + size_t{loop_count} * 16, '\0');
  auto* to = reinterpret_cast<std::byte*>(text.data());
  store_le(to, run);
  for (uint32_t i = 0; i < loop_count; ++i) {
    store_le(to + 8 + size_t{i} * 16, loops[i].count);
    store_le(to + 16 + size_t{i} * 16, loops[i].stride);
  }
  return text;
}

Result<Strides> Strides::decode(uint64_t offset, Bytes encoded) {
  if (encoded.size() < 8 || encoded.size() > kMostEncoded || encoded.size() % 16 != 8)
    return fail(Code::corrupt, "{} bytes do not say how bytes lie apart", encoded.size());
  Strides strides{.offset = offset, .run = load_le<uint64_t>(encoded.data())};
  strides.loop_count = static_cast<uint32_t>((encoded.size() - 8) / 16);
  for (uint32_t i = 0; i < strides.loop_count; ++i)
    strides.loops[i] = {load_le<uint64_t>(encoded.data() + 8 + size_t{i} * 16),
                        load_le<uint64_t>(encoded.data() + 16 + size_t{i} * 16)};
  return strides;
}

}  // namespace tutti
