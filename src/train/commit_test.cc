#include "train/commit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tutti {
namespace {

constexpr uint64_t kElements = 2 * kAdamWBlock + 5;

// A rank's vault, as plain memory.
struct Memory {
  StepWords words{};
  std::vector<float> weights = std::vector<float>(kElements);
  std::vector<float> undo = std::vector<float>(2 * kAdamWBlock);
  std::vector<float> first = std::vector<float>(kElements + kAdamWBlock);
  std::vector<float> second = std::vector<float>(kElements + kAdamWBlock);
  std::vector<float> gradient = std::vector<float>(kElements);

  StepState state() {
    return {.words = &words,
            .weights = weights.data(),
            .undo = undo.data(),
            .first = first.data(),
            .second = second.data(),
            .gradient = gradient.data(),
            .elements = kElements};
  }
  Memory() = default;
  Memory(const Memory& other) { *this = other; }
  Memory& operator=(const Memory& other) {
    weights = other.weights;
    undo = other.undo;
    first = other.first;
    second = other.second;
    gradient = other.gradient;
    words.born = other.words.born.load();
    words.ready = other.words.ready.load();
    words.decided = other.words.decided.load();
    words.committed = other.words.committed.load();
    words.progress = other.words.progress.load();
    return *this;
  }
  std::vector<float> seen() {
    const uint64_t slid = state().slid(words.committed);
    std::vector<float> all = weights;
    all.insert(all.end(), first.begin() + slid, first.begin() + slid + kElements);
    all.insert(all.end(), second.begin() + slid, second.begin() + slid + kElements);
    return all;
  }
};

struct Killed {};

// Makes only so many stores of one element or word, and is killed then. What comes between two
// publications may have reached memory in any order: `loose` ones of the last are made at random.
class MortalStore {
 public:
  explicit MortalStore(uint64_t stores, unsigned seed = 0) : left_(stores), random_(seed) {}

  void copy(float* to, const float* from, uint64_t elements) {
    std::vector<float> values(from, from + elements);
    for (uint64_t i = 0; i < elements; ++i) pending_.push_back({to + i, values[i]});
    if (seed_free()) flush();
  }
  // What the kernels do, a block at a time.
  void update(const AdamWStep& step, const AdamWArrays& arrays, const AdamWUndo& undo) {
    const uint64_t blocks = (arrays.elements + kAdamWBlock - 1) / kAdamWBlock;
    for (uint64_t k = undo.first; k < blocks; ++k) {
      const auto [begin, length] = adamw_block(arrays.elements, k, undo.down);
      copy(undo.records + k % 2 * kAdamWBlock, arrays.weights + begin, length);
      publish(*undo.begun, k + 1);
      write(step, {.weights_out = arrays.weights_out + begin,
                   .first_out = arrays.first_out + begin,
                   .second_out = arrays.second_out + begin,
                   .weights = arrays.weights + begin,
                   .first = arrays.first + begin,
                   .second = arrays.second + begin,
                   .gradient = arrays.gradient + begin,
                   .elements = length});
    }
  }
  void publish(std::atomic<uint64_t>& word, uint64_t value) {
    if (!seed_free()) std::shuffle(pending_.begin(), pending_.end(), random_);
    flush();
    spend();
    word.store(value);
  }
  uint64_t made() const { return made_; }

 private:
  struct Write {
    float* to;
    float value;
  };
  void write(const AdamWStep& step, const AdamWArrays& arrays) {
    std::vector<float> out(3 * arrays.elements);
    AdamWArrays aside = arrays;
    aside.weights_out = out.data();
    aside.first_out = out.data() + arrays.elements;
    aside.second_out = out.data() + 2 * arrays.elements;
    adamw_update(step, aside);
    for (uint64_t i = 0; i < arrays.elements; ++i) {
      pending_.push_back({arrays.weights_out + i, aside.weights_out[i]});
      pending_.push_back({arrays.first_out + i, aside.first_out[i]});
      pending_.push_back({arrays.second_out + i, aside.second_out[i]});
    }
    if (seed_free()) flush();
  }
  bool seed_free() const { return random_ == std::mt19937(0); }
  void flush() {
    for (const Write& write : pending_) {
      spend();
      *write.to = write.value;
    }
    pending_.clear();
  }
  void spend() {
    if (left_-- == 0) throw Killed();
    ++made_;
  }

  uint64_t left_;
  uint64_t made_ = 0;
  std::mt19937 random_;
  std::vector<Write> pending_;
};

// A step as a rank makes it, once the gradient is reduced.
void make_step(auto& store, Memory& memory, uint64_t target) {
  StepState state = memory.state();
  if (memory.words.ready.load() < target) say_ready(store, state);
  if (memory.words.decided.load() < target) say_decided(store, state);
  if (memory.words.committed.load() < target)
    commit(store, state, adamw_step({.learning_rate = 0.1}, target));
}

Memory at_step(uint64_t step) {
  Memory memory;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& weight : memory.weights) weight = normal(random);
  memory.words.born = 1;
  DirectStore store;
  for (uint64_t target = 1; target <= step; ++target) {
    for (float& value : memory.gradient) value = normal(random);
    make_step(store, memory, target);
  }
  for (float& value : memory.gradient) value = normal(random);
  return memory;
}

TEST_CASE("a step that was killed at any store, and again while recovering, is whole in the end") {
  for (const uint64_t step : {0UL, 1UL, 2UL}) {  // sliding down and up
    const Memory before = at_step(step);
    Memory after = before;
    MortalStore all(UINT64_MAX);
    make_step(all, after, step + 1);
    const auto expected = after.seen();
    const uint64_t stores = all.made();
    REQUIRE(stores > 50);
    for (uint64_t killed_at = 0; killed_at < stores; ++killed_at) {
      Memory memory = before;
      MortalStore mortal(killed_at);
      CHECK_THROWS_AS(make_step(mortal, memory, step + 1), Killed);
      for (uint64_t again_at = 0;; ++again_at) {
        Memory recovering = memory;
        MortalStore once_more(again_at);
        bool finished = true;
        try {
          make_step(once_more, recovering, step + 1);
        } catch (const Killed&) {
          finished = false;
        }
        DirectStore store;
        make_step(store, recovering, step + 1);
        REQUIRE(recovering.seen() == expected);
        if (finished) break;
      }
    }
  }
}

TEST_CASE("stores between two publications may have come in any order") {
  const Memory before = at_step(1);
  Memory after = before;
  MortalStore all(UINT64_MAX);
  make_step(all, after, 2);
  const auto expected = after.seen();
  for (unsigned seed = 1; seed <= 40; ++seed) {
    for (uint64_t killed_at = 0; killed_at < all.made(); ++killed_at) {
      Memory memory = before;
      MortalStore mortal(killed_at, seed);
      CHECK_THROWS_AS(make_step(mortal, memory, 2), Killed);
      DirectStore store;
      make_step(store, memory, 2);
      REQUIRE(memory.seen() == expected);
    }
  }
}

TEST_CASE("without the undo record a kill is noticed: the test can fail") {
  const Memory before = at_step(0);
  Memory after = before;
  MortalStore all(UINT64_MAX);
  make_step(all, after, 1);
  uint64_t different = 0;
  for (uint64_t killed_at = 0; killed_at < all.made(); ++killed_at) {
    Memory memory = before;
    MortalStore mortal(killed_at);
    CHECK_THROWS_AS(make_step(mortal, memory, 1), Killed);
    std::ranges::fill(memory.undo, 0.0F);  // as if there were none
    DirectStore store;
    make_step(store, memory, 1);
    different += memory.seen() != after.seen();
  }
  CHECK(different > 5);
}

// All ranks' words, each rank as far in its step as any may be when one of them is killed.
TEST_CASE("whatever was decided by anybody is done by all, and nothing else is") {
  // What a rank does to its words in one step, in order. Deciding waits for all to be ready.
  const auto words_at = [](uint64_t done, int place) {
    StepReport words{.born = 1, .ready = done, .decided = done, .committed = done};
    if (place >= 1) words.ready = done + 1;
    if (place >= 2) words.decided = done + 1;
    if (place >= 3) words.committed = done + 1;
    return words;
  };
  for (int a = 0; a <= 3; ++a) {
    for (int b = 0; b <= 3; ++b) {
      for (int c = 0; c <= 3; ++c) {
        const bool anybody_decided = std::max({a, b, c}) >= 2;
        if (anybody_decided && std::min({a, b, c}) < 1) continue;  // the barrier forbids it
        const StepReport ranks[] = {words_at(7, a), words_at(7, b), words_at(7, c)};
        const auto step = step_after_loss(ranks);
        REQUIRE(step.has_value());
        CHECK(*step == (anybody_decided ? 8 : 7));
      }
    }
  }
}

TEST_CASE("lost state is told, not guessed") {
  const StepReport whole{.born = 1, .ready = 5, .decided = 5, .committed = 5};
  const StepReport lost{};
  const StepReport ranks[] = {whole, lost};
  CHECK(step_after_loss(ranks).error().code() == Code::not_found);
  const StepReport behind{.born = 1, .ready = 3, .decided = 3, .committed = 3};
  const StepReport torn[] = {whole, behind};
  CHECK(step_after_loss(torn).error().code() == Code::corrupt);
  const StepReport young[] = {{.born = 1}, {}};
  CHECK(step_after_loss(young).value() == 0);
}

}  // namespace
}  // namespace tutti
