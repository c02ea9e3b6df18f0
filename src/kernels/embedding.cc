#include "kernels/embedding.h"

#include <cstring>

#include "kernels/scalar.h"
#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include <hwy/foreach_target.h>

#include "kernels/lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

void add_row(const float* from, float* to, size_t count) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(add(load(to + i), load(from + i)), to + i);
  for (; i < count; ++i) to[i] += from[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

BadToken embedding(const Embedding& given, int thread, int threads) {
  const Part part = part_of(given.tokens, thread, threads);
  const auto bytes = static_cast<size_t>(given.width) * sizeof(float);
  BadToken bad;
  for (int64_t token = part.first; token < part.end; ++token) {
    const int32_t id = given.ids[token];
    float* out = given.out + token * given.width;
    if (id >= 0 && id < given.table_rows) {
      std::memcpy(out, given.table + id * given.width, bytes);
    } else {
      std::memset(out, 0, bytes);
      if (!bad) bad = token;
    }
  }
  return bad;
}

BadToken embedding_grad(const EmbeddingGrad& given, int thread, int threads) {
  const Part part = part_of(given.width, thread, threads, kLanes);
  const auto count = static_cast<size_t>(part.end - part.first);
  if (!given.accumulate)
    for (int64_t row = 0; row < given.table_rows; ++row)
      std::memset(given.dtable + row * given.width + part.first, 0, count * sizeof(float));
  const auto add = TUTTI_SIMD(add_row);
  BadToken bad;
  for (int64_t token = 0; token < given.tokens; ++token) {
    const int32_t id = given.ids[token];
    if (id >= 0 && id < given.table_rows)
      add(given.dout + token * given.width + part.first,
          given.dtable + id * given.width + part.first, count);
    else if (!bad)
      bad = token;
  }
  return bad;
}

void embedding_reference(const Embedding& given) {
  for (int64_t i = 0; i < given.tokens * given.width; ++i) {
    const int32_t id = given.ids[i / given.width];
    const bool good = id >= 0 && id < given.table_rows;
    given.out[i] = good ? given.table[id * given.width + i % given.width] : 0;
  }
}

void embedding_grad_reference(const EmbeddingGrad& given) {
  if (!given.accumulate)
    for (int64_t i = 0; i < given.table_rows * given.width; ++i) given.dtable[i] = 0;
  for (int64_t i = 0; i < given.tokens * given.width; ++i) {
    const int32_t id = given.ids[i / given.width];
    if (id >= 0 && id < given.table_rows)
      given.dtable[id * given.width + i % given.width] += given.dout[i];
  }
}

}  // namespace tutti
#endif
