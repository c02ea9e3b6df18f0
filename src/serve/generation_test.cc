#include "serve/generation.h"

#include <algorithm>

#include "serve/gpt_fixture_test.h"

using namespace tutti;

namespace {

struct Trial {
  SmallGpt gpt{.layers = 2, .places = 60};
  Weights weights;
  ThreadTeam team{2};
  TestDevice device{team};
  std::unique_ptr<Decoder> decoder;

  explicit Trial(int64_t sequences) {
    auto made = Decoder::make(gpt.for_decoding(), weights.find(),
                              {.cache = {sequences, gpt.places}, .chunk = 16}, device.cpu);
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    decoder = *std::move(made);
  }

  struct Made {
    std::vector<TokenList> whole;  // with the prompts
    std::vector<Ending> endings;
  };
  Made generate(const std::vector<TokenList>& prompts, const GenerationOptions& options) {
    Generation text(*decoder, options);
    const auto started = text.start(prompts);
    REQUIRE_MESSAGE(started.has_value(), started.error().text());
    Made made{prompts, std::vector<Ending>(prompts.size())};
    while (!text.done()) {
      const auto next = text.next();
      REQUIRE_MESSAGE(next.has_value(), next.error().text());
      for (const NextToken& each : *next) {
        made.whole[static_cast<size_t>(each.sequence)].push_back(each.token);
        if (each.ending) made.endings[static_cast<size_t>(each.sequence)] = *each.ending;
      }
    }
    CHECK(text.next()->empty());
    return made;
  }
};

const std::vector<TokenList> kPrompts{
    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, {30}, {7, 7, 7}};

}  // namespace

TEST_CASE("the likeliest tokens are those of the whole sequence at once") {
  Trial trial(3);
  const auto made = trial.generate(kPrompts, {.tokens = 100, .keep = 0});
  for (size_t i = 0; i < made.whole.size(); ++i) {
    const TokenList& tokens = made.whole[i];
    CHECK(made.endings[i] == Ending::context);
    // The last token was never taken in.
    REQUIRE(std::ssize(tokens) == trial.gpt.places + 1);
    const auto logits =
        all_logits(trial.gpt, trial.weights, {TokenList(tokens.begin(), tokens.end() - 1)});
    for (size_t place = kPrompts[i].size() - 1; place + 1 < tokens.size(); ++place) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(place) * trial.gpt.vocab;
      CHECK(std::max_element(row, row + trial.gpt.vocab) - row == tokens[place + 1]);
    }
  }
}

TEST_CASE("past the context a token follows from those that were taken along") {
  constexpr int64_t kTokens = 150;
  for (const int64_t keep : {1, 25, 59, 60}) {
    CAPTURE(keep);
    Trial trial(3);
    const auto made = trial.generate(kPrompts, {.tokens = kTokens, .keep = keep});
    for (size_t i = 0; i < made.whole.size(); ++i) {
      CHECK(made.endings[i] == Ending::tokens);
      const TokenList& tokens = made.whole[i];
      REQUIRE(tokens.size() == kPrompts[i].size() + kTokens);
      // From the first token of a context to the last that follows from it.
      int64_t known = std::ssize(kPrompts[i]);
      for (int64_t first = 0; known < std::ssize(tokens); first = known - keep) {
        TokenList inside(tokens.begin() + first, tokens.end());
        inside.resize(static_cast<size_t>(trial.gpt.places));  // what comes later is not seen
        const auto logits = all_logits(trial.gpt, trial.weights, {inside});
        const int64_t end = std::min(first + trial.gpt.places + 1, std::ssize(tokens));
        for (; known < end; ++known) {
          const auto row = logits.begin() + (known - first - 1) * trial.gpt.vocab;
          CHECK(std::max_element(row, row + trial.gpt.vocab) - row ==
                tokens[static_cast<size_t>(known)]);
        }
      }
    }
  }
}

TEST_CASE("of a prompt longer than the context the end counts") {
  Trial trial(1);
  TokenList prompt;
  for (int32_t i = 0; i < 90; ++i) prompt.push_back(i * 7 % 37);
  const TokenList end(prompt.end() - trial.gpt.places, prompt.end());
  const auto whole = trial.generate({prompt}, {.tokens = 5}).whole[0];
  const auto cut = trial.generate({end}, {.tokens = 5}).whole[0];
  CHECK(TokenList(whole.end() - 5, whole.end()) == TokenList(cut.end() - 5, cut.end()));
}

TEST_CASE("what is drawn follows from the seed, the sequence and the position") {
  Trial trial(3);
  const GenerationOptions options{.tokens = 30,
                                  .sampling = {.temperature = 1.5, .top_p = 0.95, .seed = 7}};
  const auto first = trial.generate(kPrompts, options);
  CHECK(trial.generate(kPrompts, options).whole == first.whole);
  GenerationOptions other = options;
  other.sampling.seed = 8;
  CHECK(trial.generate(kPrompts, other).whole != first.whole);
  const auto same = trial.generate({{5}, {5}, {5}}, options);
  CHECK(same.whole[0] != same.whole[1]);
  CHECK(first.endings[0] == Ending::tokens);
  CHECK(first.whole[1].size() == 31);
  Trial alone(1);
  CHECK(alone.generate({kPrompts[0]}, options).whole[0] == first.whole[0]);
}

TEST_CASE("a sequence stops where it should, and others go on") {
  Trial trial(3);
  const auto free = trial.generate(kPrompts, {.tokens = 20});
  const int32_t stop = free.whole[1][5];
  const auto made = trial.generate(kPrompts, {.tokens = 20, .stop = {stop}});
  for (size_t i = 0; i < 3; ++i) {
    const auto begin = free.whole[i].begin() + static_cast<ptrdiff_t>(kPrompts[i].size());
    const auto found = std::find(begin, free.whole[i].end(), stop);
    const bool stops = found != free.whole[i].end();
    CHECK(made.whole[i] == TokenList(free.whole[i].begin(), stops ? found + 1 : found));
    CHECK(made.endings[i] == (stops ? Ending::stop : Ending::tokens));
  }
}

TEST_CASE("generation says what it cannot begin with") {
  Trial trial(1);
  const auto error = [&](const std::vector<TokenList>& prompts, const GenerationOptions& options) {
    return Generation(*trial.decoder, options).start(prompts).error().text();
  };
  CHECK(error({{}}, {}) == "prompt 0 is empty; give it one token or more");
  CHECK(
      error({{1, -1}}, {}).starts_with("prompt 0 has token -1 at place 1; this model's are 0 to"));
  CHECK(error({{1'000'000}}, {}).starts_with("prompt 0 has token 1000000 at place 0;"));
  CHECK(error({{1}, {2}}, {}) == "2 prompts for 1 sequences");
  CHECK(error({{1}}, {.tokens = 0}) == "0 tokens cannot be generated; ask for 1 or more");
  CHECK(error({{1}}, {.keep = 61}) == "61 tokens cannot be taken along in a context of 60");
  CHECK(
      error({TokenList(62, 1)}, {.keep = 0}).starts_with("sequence 0 has room for 60 more tokens"));
  CHECK(error({{1}}, {.sampling = {.temperature = -1}}) ==
        "temperature -1 is not a number from 0 on");
}
