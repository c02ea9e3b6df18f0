// How the elements of a parameter are dealt to workers, when not all of them keep all of it.
//
// Shards are canonical chunks side by side (compile/chunk.h): of the whole tensor, or of each layer
// alike where a layer's weights are gathered when it is computed. So sums over a tensor have the
// same bits whoever has which shard. What is small, or does not part into chunks, all keep whole.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compile/builder.h"
#include "compile/model.h"

namespace tutti {

// The axis of the mesh along which workers share the data, as collectives of programs call it.
constexpr const char* kDataAxis = "dp";

// Of what each worker has only a shard.
enum class ShardedState : uint8_t {
  none,     // dp
  moments,  // zero1: and of the gradients that they are made of
  all,      // fsdp: weights too, which are gathered when they are used
};

struct ShardingOptions {
  ShardedState what = ShardedState::none;
  uint32_t workers = 1;
  uint32_t worker = 0;
};

struct Shards {
  int64_t rows = 1;               // layers, or one
  int64_t row = 0;                // elements of each
  std::vector<int64_t> counts{};  // of a row, for each worker; none if all have everything
  uint32_t worker = 0;

  bool parted() const { return !counts.empty(); }
  int64_t first(uint32_t of) const;
  int64_t own_first() const { return first(worker); }
  int64_t own() const { return counts[worker]; }
  // Of this worker: f32[shard], or f32[layer, shard].
  Type type() const;
  // What a collective over shards of one row is told, besides.
  Attributes attributes(Attributes besides = {}) const;
};

Shards shards_of(const Parameter& parameter, const ShardingOptions& options);

// Of a parameter's weights, and of each of its moments, what this worker keeps.
Type weights_type(const Parameter& parameter, const ShardingOptions& options);
Type moments_type(const Parameter& parameter, const ShardingOptions& options);

// A graph of the model with shards of weights as its states, which are gathered where they are
// used: of stacked ones in each round, that layer's. Code::unsupported when a stacked one is used
// in another way.
Result<Graph> gather_weights(const Graph& graph, const Model& model,
                             const ShardingOptions& options);

// The state of this worker's shards of a parameter, all of which are gathered at once.
Tensor gathered_weights(Builder& b, const Parameter& parameter, const ShardingOptions& options);

// Gradients that a repeat stacks are summed with all workers in its rounds, each worker's shard of
// them; for workers that have one lane of one atom each. `lanes` is what collectives are told.
Result<Graph> scatter_gradients(Graph graph, const Model& model, const ShardingOptions& options,
                                const Attributes& lanes);

}  // namespace tutti
