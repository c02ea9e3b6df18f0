#include "serve/generation.h"

#include <algorithm>

namespace tutti {
namespace {

void keep_last(TokenList& tokens, int64_t count) {
  if (std::ssize(tokens) > count) tokens.erase(tokens.begin(), tokens.end() - count);
}

TokenList but_last(const TokenList& tokens) { return {tokens.begin(), tokens.end() - 1}; }

}  // namespace

std::string_view ending_name(Ending ending) {
  switch (ending) {
    case Ending::tokens: return "tokens";
    case Ending::stop: return "stop";
    case Ending::context: return "context";
  }
  return "?";
}

Generation::Generation(Decoder& decoder, GenerationOptions options)
    : decoder_(decoder),
      options_(std::move(options)),
      keep_(options_.keep.value_or(std::max<int64_t>(1, decoder.places() / 2))) {}

Result<void> Generation::start(const std::vector<TokenList>& prompts) {
  TRY_DO(check_sampling(options_.sampling));
  if (options_.tokens < 1)
    return fail(Code::invalid, "{} tokens cannot be generated; ask for 1 or more", options_.tokens);
  if (keep_ < 0 || keep_ > decoder_.places())
    return fail(Code::invalid, "{} tokens cannot be taken along in a context of {}", keep_,
                decoder_.places());
  if (std::cmp_not_equal(prompts.size(), decoder_.sequences()))
    return fail(Code::invalid, "{} prompts for {} sequences", prompts.size(), decoder_.sequences());
  std::vector<TokenList> inside = prompts;
  std::vector<TokenList> before;
  TokenList last;
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty())
      return fail(Code::invalid, "prompt {} is empty; give it one token or more", i);
    // Also -1, which is what the decoder calls no token.
    const auto foreign = std::ranges::find_if(
        prompts[i], [&](int32_t each) { return each < 0 || each >= decoder_.vocabulary(); });
    if (foreign != prompts[i].end())
      return fail(Code::invalid, "prompt {} has token {} at place {}; this model's are 0 to {}", i,
                  *foreign, foreign - prompts[i].begin(), decoder_.vocabulary() - 1);
    if (keep_ > 0) keep_last(inside[i], decoder_.places());
    // The last one is taken in by the first step, which says what comes after it.
    before.push_back(but_last(inside[i]));
    last.push_back(inside[i].back());
    lengths.push_back(prompts[i].size());
  }
  for (int64_t i = 0; i < decoder_.sequences(); ++i) decoder_.rewind(i, 0);
  TRY_DO(decoder_.feed(before));
  inside_ = std::move(inside);
  last_ = std::move(last);
  lengths_ = std::move(lengths);
  made_ = 0;
  open_ = last_.size();
  return {};
}

bool Generation::is_full(size_t sequence) const {
  return decoder_.position(static_cast<int64_t>(sequence)) == decoder_.places();
}

std::optional<Ending> Generation::ending(size_t sequence) const {
  if (std::ranges::count(options_.stop, last_[sequence]) != 0) return Ending::stop;
  if (made_ == options_.tokens) return Ending::tokens;
  if (keep_ == 0 && is_full(sequence)) return Ending::context;
  return std::nullopt;
}

// Takes the last tokens of those in again whose context is full.
Result<void> Generation::make_room() {
  std::vector<TokenList> again(last_.size());
  for (size_t i = 0; i < last_.size(); ++i) {
    if (last_[i] == Decoder::kNoToken || !is_full(i)) continue;
    keep_last(inside_[i], keep_);
    again[i] = but_last(inside_[i]);
    decoder_.rewind(static_cast<int64_t>(i), 0);
  }
  return decoder_.feed(again);
}

Result<std::vector<NextToken>> Generation::next() {
  std::vector<NextToken> made;
  if (done()) return made;
  TRY_DO(make_room());
  TRY(const std::span<const float> logits, decoder_.step(last_));
  ++made_;
  const auto words = static_cast<size_t>(decoder_.vocabulary());
  for (size_t i = 0; i < last_.size(); ++i) {
    if (last_[i] == Decoder::kNoToken) continue;
    TRY(last_[i], sample(logits.subspan(i * words, words), options_.sampling, i, lengths_[i]));
    inside_[i].push_back(last_[i]);
    ++lengths_[i];
    made.push_back({static_cast<int64_t>(i), last_[i], ending(i)});
    if (!made.back().ending) continue;
    last_[i] = Decoder::kNoToken;
    --open_;
  }
  return made;
}

}  // namespace tutti
