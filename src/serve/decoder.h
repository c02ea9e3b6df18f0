// A language model that is fed its sequences piece by piece: several at once, each with its own
// length, over caches of keys and values.
//
// Two programs share weights and caches: one takes one token of each sequence and says which might
// come next, the other takes many and only fills the caches. What it computes has the bits of the
// whole sequence computed at once. One thread calls; the device computes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/model.h"
#include "run/device.h"

namespace tutti {

// How a model is traced for a decoder: input "tokens", i32[batch, time], caches of `cache`, and an
// output "logits" whose last dimension is the vocabulary.
struct DecodingShape {
  CacheShape cache;
  int64_t time;
};
using TraceForDecoding = std::function<Result<Model>(const DecodingShape& shape)>;

// Where a parameter's values are, in its own order, stacked if it is; as long as the decoder lives,
// and never changed.
using FindWeight = std::function<Result<const float*>(const Parameter& parameter)>;

struct DecoderOptions {
  CacheShape cache;
  // TokenList of each sequence in one run of the second program: enough that reading the weights
  // costs little beside computing with them.
  int64_t chunk = 64;
  // Weights stay packed for that program, in as much memory again: for those who feed long texts,
  // or many. It pays from some thousand tokens on (docs/kernels.md).
  bool keep_packed = false;
};

using TokenList = std::vector<int32_t>;

class Decoder {
 public:
  // Traces and loads both programs. The device must outlive it.
  static Result<std::unique_ptr<Decoder>> make(const TraceForDecoding& trace,
                                               const FindWeight& weights,
                                               const DecoderOptions& options, Device& device);
  ~Decoder();

  int64_t sequences() const { return options_.cache.sequences; }
  int64_t places() const { return options_.cache.places; }
  int64_t vocabulary() const { return vocabulary_; }
  // How much of a sequence is in the caches.
  int64_t position(int64_t sequence) const { return positions_[static_cast<size_t>(sequence)]; }
  int64_t cache_bytes() const { return cache_bytes_; }
  int64_t panel_bytes() const;  // of weights that stay packed

  // Forgets a sequence from a place on; what comes next is written over it.
  void rewind(int64_t sequence, int64_t position);
  // Takes tokens of each sequence in, which may be of different lengths, or none.
  Result<void> feed(const std::vector<TokenList>& more);
  // Takes one token of each in, or kNoToken, and gives [sequence][vocabulary] until the next call;
  // what is there of a sequence without a token means nothing.
  static constexpr int32_t kNoToken = -1;
  Result<std::span<const float>> step(std::span<const int32_t> tokens);

 private:
  struct Side;
  struct Room;

  explicit Decoder(const DecoderOptions& options);
  Result<std::unique_ptr<Side>> make_side(const Model& model, const FindWeight& weights,
                                          Device& device);
  std::byte* cache(const std::string& name, int64_t bytes);
  Result<void> check_tokens(size_t sequence, std::span<const int32_t> tokens) const;
  Result<void> run(Side& side, const std::vector<std::span<const int32_t>>& tokens);

  DecoderOptions options_;
  int64_t vocabulary_ = 0;
  int64_t cache_bytes_ = 0;
  std::vector<int64_t> positions_;
  std::vector<std::pair<std::string, std::unique_ptr<Room>>> caches_;
  std::unique_ptr<Side> step_;
  std::unique_ptr<Side> chunk_;
};

}  // namespace tutti
