// Sequences that go on from prompts, one token of each at a time.
//
// A sequence may get longer than the decoder's context. When that is full, its last tokens are
// taken in again, as the first ones of the context; what comes next is computed from these alone.
//
//   Generation text(decoder, {.tokens = 200, .sampling = {.temperature = 0.8}});
//   TRY_DO(text.start(prompts));
//   while (!text.done()) {
//     TRY(const auto tokens, text.next());
//     for (const NextToken& each : tokens) …
//   }
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "serve/decoder.h"
#include "serve/sampler.h"

namespace tutti {

struct GenerationOptions {
  int64_t tokens = 128;  // at most so many are made of each sequence
  Sampling sampling;
  TokenList stop;  // whichever of these comes is a sequence's last
  // How many tokens are taken along when the context is full, from 1 to all of it; half of it if
  // none is given, so that a pass over them pays for many tokens. 0: the sequence ends there.
  std::optional<int64_t> keep;
};

// Why a sequence ended.
enum class Ending : uint8_t {
  tokens,   // it has all that were asked for
  stop,     // one of those came that it should stop at
  context,  // the context is full, and nothing is to be taken along
};
std::string_view ending_name(Ending ending);

struct NextToken {
  int64_t sequence;
  int32_t token;
  std::optional<Ending> ending;  // with the last one
};

class Generation {
 public:
  // The decoder must outlive it; it is used for one at a time.
  Generation(Decoder& decoder, GenerationOptions options);

  // Takes prompts in, one for each of the decoder's sequences, of one token or more each. Of one
  // longer than the context the end is taken, unless sequences end where that does.
  Result<void> start(const std::vector<TokenList>& prompts);
  bool done() const { return open_ == 0; }
  // One more token of each sequence that has not ended.
  Result<std::vector<NextToken>> next();

 private:
  bool is_full(size_t sequence) const;
  std::optional<Ending> ending(size_t sequence) const;
  Result<void> make_room();

  Decoder& decoder_;
  GenerationOptions options_;
  TokenList last_;                 // of each sequence, or kNoToken when it has ended
  std::vector<TokenList> inside_;  // what of each is in the context, and the last one
  std::vector<uint64_t> lengths_;  // of each, with its prompt
  int64_t keep_ = 0;
  int64_t made_ = 0;
  size_t open_ = 0;
};

}  // namespace tutti
