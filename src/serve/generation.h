// Sequences that go on from prompts, one token of each at a time.
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
};

// Why a sequence ended.
enum class Ending : uint8_t {
  tokens,   // it has all that were asked for
  stop,     // one of those came that it should stop at
  context,  // the context is full
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

  // Takes prompts in, one for each of the decoder's sequences, of one token or more each.
  Result<void> start(const std::vector<TokenList>& prompts);
  bool done() const { return open_ == 0; }
  // One more token of each sequence that has not ended.
  Result<std::vector<NextToken>> next();

 private:
  std::optional<Ending> ending(size_t sequence) const;

  Decoder& decoder_;
  GenerationOptions options_;
  TokenList last_;  // of each sequence, or kNoToken when it has ended
  int64_t made_ = 0;
  size_t open_ = 0;
};

}  // namespace tutti
