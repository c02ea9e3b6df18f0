// Attention without the matrix of scores in memory: blocks of keys, a running softmax, and only the
// logarithm of the sum of exponentials saved; the gradient computes the scores again.
//
//   out = softmax(q kᵀ · scale) v
//
// Several query heads may share a head of keys and values. Queries may be fewer than keys: they
// are the last places, so that decoding is one query; or, with `positions`, those from a place on
// of keys that were kept in a larger cache. All threads call with their
// index and a workspace of their own; parts, which are heads of keys of a batch, are independent.
// Every element is a chain of fused multiply-adds in the order of places, and a row of out depends
// on its query and the keys it sees alone: the same bits for every target, number of threads,
// batch, and whether places come at once or one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/share.h"

namespace tutti {

struct AttentionShape {
  int64_t batch;
  int64_t query_heads;  // a multiple of kv_heads
  int64_t kv_heads;
  int64_t queries;
  int64_t keys;
  int64_t head_size;
  float scale;
  bool causal;  // a query sees the keys up to its own place; needs queries <= keys
};

// Element (batch, head, time, i) at data[batch · batch_stride + … + i].
template <class T>
struct HeadsOf {
  T* data;
  int64_t batch_stride;
  int64_t head_stride;
  int64_t time_stride;

  T* at(int64_t batch, int64_t head, int64_t time) const {
    return data + batch * batch_stride + head * head_stride + time * time_stride;
  }
};
using Heads = HeadsOf<float>;
using ConstHeads = HeadsOf<const float>;

struct Attention {
  AttentionShape shape;
  ConstHeads q;
  ConstHeads k;
  ConstHeads v;
  Heads out;
  float* lse;  // [batch][query_heads][queries]: logarithms of the sums of exponentials
  // If there are any: in the batch at b query i sees the keys up to positions[b · stride] + i, as
  // far as there are so many. Only when causal.
  const int64_t* positions = nullptr;
  int64_t position_stride = 0;
};
// Of each thread. A turn is a head of keys.
size_t attention_workspace_bytes(const AttentionShape& shape);
void attention(const Attention& given, Turns& turns, std::byte* workspace);

struct AttentionGrad {
  AttentionShape shape;
  ConstHeads dout;
  ConstHeads q;
  ConstHeads k;
  ConstHeads v;
  ConstHeads out;
  const float* lse;
  Heads dq;
  Heads dk;
  Heads dv;
};
size_t attention_grad_workspace_bytes(const AttentionShape& shape);
void attention_grad(const AttentionGrad& given, Turns& turns, std::byte* workspace);

// In double precision: what the kernels approximate.
void attention_reference(const Attention& given);
void attention_grad_reference(const AttentionGrad& given);

}  // namespace tutti
