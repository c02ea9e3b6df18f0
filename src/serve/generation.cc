#include "serve/generation.h"

#include <algorithm>

namespace tutti {

std::string_view ending_name(Ending ending) {
  switch (ending) {
    case Ending::tokens: return "tokens";
    case Ending::stop: return "stop";
    case Ending::context: return "context";
  }
  return "?";
}

Generation::Generation(Decoder& decoder, GenerationOptions options)
    : decoder_(decoder), options_(std::move(options)) {}

Result<void> Generation::start(const std::vector<TokenList>& prompts) {
  TRY_DO(check_sampling(options_.sampling));
  if (options_.tokens < 1)
    return fail(Code::invalid, "{} tokens cannot be generated; ask for 1 or more", options_.tokens);
  if (std::cmp_not_equal(prompts.size(), decoder_.sequences()))
    return fail(Code::invalid, "{} prompts for {} sequences", prompts.size(), decoder_.sequences());
  // The last one of each is taken in by the first step, which says what comes after it.
  std::vector<TokenList> before = prompts;
  TokenList last;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      return fail(Code::invalid, "prompt {} is empty; give it one token or more", i);
    last.push_back(prompts[i].back());
    before[i].pop_back();
  }
  for (int64_t i = 0; i < decoder_.sequences(); ++i) decoder_.rewind(i, 0);
  TRY_DO(decoder_.feed(before));
  last_ = std::move(last);
  made_ = 0;
  open_ = last_.size();
  return {};
}

std::optional<Ending> Generation::ending(size_t sequence) const {
  if (std::ranges::count(options_.stop, last_[sequence]) != 0) return Ending::stop;
  if (made_ == options_.tokens) return Ending::tokens;
  if (decoder_.position(static_cast<int64_t>(sequence)) == decoder_.places())
    return Ending::context;
  return std::nullopt;
}

Result<std::vector<NextToken>> Generation::next() {
  std::vector<NextToken> made;
  if (done()) return made;
  TRY(const std::span<const float> logits, decoder_.step(last_));
  ++made_;
  const auto words = static_cast<size_t>(decoder_.vocabulary());
  for (size_t i = 0; i < last_.size(); ++i) {
    if (last_[i] == Decoder::kNoToken) continue;
    const auto position = static_cast<uint64_t>(decoder_.position(static_cast<int64_t>(i)));
    TRY(last_[i], sample(logits.subspan(i * words, words), options_.sampling, i, position));
    made.push_back({static_cast<int64_t>(i), last_[i], ending(i)});
    if (!made.back().ending) continue;
    last_[i] = Decoder::kNoToken;
    --open_;
  }
  return made;
}

}  // namespace tutti
