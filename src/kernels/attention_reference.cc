#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"

namespace tutti {
namespace {

// One query of one head: the keys it sees, and what it makes of them.
struct Query {
  int64_t batch, head, kv_head, time, seen;
};

template <class Visit>
void each_query(const AttentionShape& s, const Visit& visit, const int64_t* positions = nullptr,
                int64_t position_stride = 0) {
  const auto seen = [&](int64_t batch, int64_t time) {
    if (!s.causal) return s.keys;
    const int64_t before =
        positions == nullptr ? s.keys - s.queries : positions[batch * position_stride];
    return std::min(s.keys, before + time + 1);
  };
  for (int64_t batch = 0; batch < s.batch; ++batch)
    for (int64_t head = 0; head < s.query_heads; ++head)
      for (int64_t time = 0; time < s.queries; ++time)
        visit(Query{batch, head, head / (s.query_heads / s.kv_heads), time, seen(batch, time)});
}

double dot(const float* a, const float* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

void attention_reference(const Attention& a) {
  const AttentionShape& s = a.shape;
  each_query(
      s,
      [&](const Query& query) {
        const float* q = a.q.at(query.batch, query.head, query.time);
        std::vector<double> scores;
        for (int64_t key = 0; key < query.seen; ++key)
          scores.push_back(s.scale * dot(q, a.k.at(query.batch, query.kv_head, key), s.head_size));
        double highest = -INFINITY;
        for (const double score : scores) highest = std::max(highest, score);
        double sum = 0;
        for (const double score : scores) sum += std::exp(score - highest);
        for (int64_t i = 0; i < s.head_size; ++i) {
          double out = 0;
          for (int64_t key = 0; key < query.seen; ++key)
            out += std::exp(scores[static_cast<size_t>(key)] - highest) / sum *
                   a.v.at(query.batch, query.kv_head, key)[i];
          a.out.at(query.batch, query.head, query.time)[i] = static_cast<float>(out);
        }
        a.lse[(query.batch * s.query_heads + query.head) * s.queries + query.time] =
            static_cast<float>(highest + std::log(sum));
      },
      a.positions, a.position_stride);
}

void attention_grad_reference(const AttentionGrad& a) {
  const AttentionShape& s = a.shape;
  const int64_t per_kv = s.keys * s.head_size;
  std::vector<double> dk(static_cast<size_t>(s.batch * s.kv_heads * per_kv));
  std::vector<double> dv(dk.size());
  each_query(s, [&](const Query& query) {
    const float* q = a.q.at(query.batch, query.head, query.time);
    const float* dout = a.dout.at(query.batch, query.head, query.time);
    const double less = dot(dout, a.out.at(query.batch, query.head, query.time), s.head_size);
    const float lse = a.lse[(query.batch * s.query_heads + query.head) * s.queries + query.time];
    std::vector<double> dq(static_cast<size_t>(s.head_size));
    for (int64_t key = 0; key < query.seen; ++key) {
      const float* k = a.k.at(query.batch, query.kv_head, key);
      const float* v = a.v.at(query.batch, query.kv_head, key);
      const double p = std::exp(s.scale * dot(q, k, s.head_size) - lse);
      const double ds = p * (dot(dout, v, s.head_size) - less) * s.scale;
      const int64_t base = (query.batch * s.kv_heads + query.kv_head) * per_kv + key * s.head_size;
      for (int64_t i = 0; i < s.head_size; ++i) {
        dq[static_cast<size_t>(i)] += ds * k[i];
        dk[static_cast<size_t>(base + i)] += ds * q[i];
        dv[static_cast<size_t>(base + i)] += p * dout[i];
      }
    }
    for (int64_t i = 0; i < s.head_size; ++i)
      a.dq.at(query.batch, query.head, query.time)[i] =
          static_cast<float>(dq[static_cast<size_t>(i)]);
  });
  for (int64_t index = 0; index < s.batch * s.kv_heads * s.keys; ++index)
    for (int64_t i = 0; i < s.head_size; ++i) {
      const int64_t head = index / s.keys % s.kv_heads;
      const int64_t batch = index / s.keys / s.kv_heads;
      const auto at = static_cast<size_t>(index * s.head_size + i);
      a.dk.at(batch, head, index % s.keys)[i] = static_cast<float>(dk[at]);
      a.dv.at(batch, head, index % s.keys)[i] = static_cast<float>(dv[at]);
    }
}

}  // namespace tutti
