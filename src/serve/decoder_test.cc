#include "serve/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/philox.h"
#include "serve/gpt_fixture_test.h"

using namespace tutti;

namespace {

TokenList random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  TokenList tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random_bits(seed, 0, static_cast<uint64_t>(i)) % vocab));
  return tokens;
}

struct Trial {
  SmallGpt gpt;
  Weights weights;
  ThreadTeam team;
  TestDevice device{team};
  std::unique_ptr<Decoder> decoder;

  Trial(const SmallGpt& model, int64_t sequences, int64_t chunk, int threads,
        bool keep_packed = false)
      : gpt(model), team(threads) {
    auto made = Decoder::make(
        gpt.for_decoding(), weights.find(),
        {.cache = {sequences, gpt.places}, .chunk = chunk, .keep_packed = keep_packed}, device.cpu);
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    decoder = *std::move(made);
  }

  // Steps through the rest of sequences, and compares logits with those of all at once.
  void check_rest(const std::vector<TokenList>& whole, const std::vector<float>& expected) {
    const auto words = static_cast<size_t>(gpt.vocab);
    const size_t time = whole[0].size();
    for (bool more = true; more;) {
      more = false;
      TokenList now;
      std::vector<size_t> places;
      for (size_t i = 0; i < whole.size(); ++i) {
        const auto place = static_cast<size_t>(decoder->position(static_cast<int64_t>(i)));
        places.push_back(place);
        now.push_back(place < time ? whole[i][place] : Decoder::kNoToken);
        more = more || place < time;
      }
      if (!more) return;
      const auto logits = decoder->step(now);
      REQUIRE_MESSAGE(logits.has_value(), logits.error().text());
      for (size_t i = 0; i < whole.size(); ++i) {
        if (now[i] == Decoder::kNoToken) continue;
        CAPTURE(i);
        CAPTURE(places[i]);
        CHECK(std::memcmp(logits->data() + i * words,
                          expected.data() + (i * time + places[i]) * words,
                          words * sizeof(float)) == 0);
      }
    }
  }
};

std::vector<TokenList> first_of(const std::vector<TokenList>& whole,
                                const std::vector<size_t>& counts) {
  std::vector<TokenList> some;
  for (size_t i = 0; i < whole.size(); ++i)
    some.emplace_back(whole[i].begin(), whole[i].begin() + static_cast<ptrdiff_t>(counts[i]));
  return some;
}

}  // namespace

TEST_CASE("sequences piece by piece have the bits of sequences at once") {
  for (const bool tied : {true, false}) {
    const SmallGpt gpt{.tied = tied};
    const std::vector<TokenList> whole{random_tokens(gpt.places, gpt.vocab, 1),
                                       random_tokens(gpt.places, gpt.vocab, 2),
                                       random_tokens(gpt.places, gpt.vocab, 3)};
    Weights weights;
    const auto expected = all_logits(gpt, weights, whole);
    for (const int threads : {1, 2}) {
      CAPTURE(tied);
      CAPTURE(threads);
      // Of different lengths, the chunks of the longest reach past the end.
      Trial trial(gpt, 3, 48, threads);
      REQUIRE(trial.decoder->feed(first_of(whole, {100, 1, 53})).has_value());
      CHECK(trial.decoder->position(0) == 100);
      trial.check_rest(whole, expected);
    }
  }
}

TEST_CASE("weights that stay packed change no bits") {
  const SmallGpt gpt{.layers = 2, .heads = 3, .group = 1, .head = 34, .places = 120};
  const std::vector<TokenList> whole{random_tokens(gpt.places, gpt.vocab, 1)};
  Weights weights;
  const auto expected = all_logits(gpt, weights, whole);
  CHECK(Trial(gpt, 1, 48, 2).decoder->panel_bytes() == 0);
  Trial trial(gpt, 1, 48, 2, true);
  CHECK(trial.decoder->panel_bytes() > 2 * 4 * 102 * 102 * 4);  // of each layer these, and more
  REQUIRE(trial.decoder->feed(first_of(whole, {100})).has_value());
  trial.check_rest(whole, expected);
}

TEST_CASE("what a sequence computes does not depend on the others, or on what came before") {
  const SmallGpt gpt{.layers = 1, .places = 40};
  const TokenList tokens = random_tokens(40, gpt.vocab, 4);
  Weights weights;
  const auto expected = all_logits(gpt, weights, {tokens});
  Trial trial(gpt, 1, 16, 1);
  REQUIRE(trial.decoder->feed({random_tokens(33, gpt.vocab, 5)}).has_value());
  trial.decoder->rewind(0, 0);
  REQUIRE(trial.decoder->feed(first_of({tokens}, {20})).has_value());
  trial.check_rest({tokens}, expected);
  trial.decoder->rewind(0, 7);
  trial.check_rest({tokens}, expected);
  CHECK(trial.decoder->cache_bytes() == 2 * 40 * gpt.heads * gpt.head * 4);
}

TEST_CASE("a decoder says what does not fit") {
  const SmallGpt gpt{.layers = 1, .places = 20};
  Trial trial(gpt, 2, 8, 1);
  const auto error = [&](const std::vector<TokenList>& more) {
    return trial.decoder->feed(more).error().text();
  };
  CHECK(error({TokenList(21, 1), {}}) ==
        "sequence 0 has room for 20 more tokens of 20, not for 21; make it shorter, or the context "
        "longer");
  CHECK(error({{}, {3, 37}}) == "token 37 of sequence 1 is outside of the vocabulary of 37");
  CHECK(error({{-1}, {}}) == "token -1 of sequence 0 is outside of the vocabulary of 37");
  CHECK(trial.decoder->position(0) == 0);
  REQUIRE(trial.decoder->feed({TokenList(20, 1), {}}).has_value());
  CHECK(!trial.decoder->step(TokenList{1, 1}).has_value());
  CHECK(trial.decoder->step(TokenList{Decoder::kNoToken, 1}).has_value());
}

TEST_CASE("a decoder refuses models that it cannot feed") {
  const auto refused = [](const TraceForDecoding& trace) {
    TeamOfOne team;
    Weights weights;
    TestDevice device(team);
    const auto made = Decoder::make(trace, weights.find(), {.cache = {1, 4}}, device.cpu);
    REQUIRE(!made.has_value());
    return made.error().text();
  };
  const auto with = [&](const auto& body) {
    return refused([&](const DecodingShape& shape) {
      ModelBuilder m("m", ModelUse::generate);
      m.keep_cache(shape.cache);
      const Tensor tokens = m.input("tokens", {DType::i32, {{"batch", 1}, {"time", shape.time}}});
      const Tensor words = m.parameter("words", {{"vocab", 3}, {"embed", 4}}, normal(1));
      body(m, m.ops().gather(words, tokens, "vocab"));
      return m.build();
    });
  };
  CHECK(with([](ModelBuilder& m, const Tensor& x) { m.output("y", x); }) ==
        "a model that generates has an output logits; m has none");
  CHECK(with([](ModelBuilder& m, const Tensor& x) {
          m.output("logits", m.ops().sum(x, {"time"}));
        }).starts_with("logits is f32[batch=1, embed=4], not f32[batch, time"));
  CHECK(with([](ModelBuilder& m, const Tensor& x) {
          const Tensor keys = m.ops().rename(x, "time", "keys");
          m.output("logits", m.attention(x, keys, keys, {.causal = false, .head = "embed"}));
        }).ends_with("cannot be computed piece by piece; make it causal"));
}
