#include "train/tokens.h"

#include <doctest/doctest.h>

#include <fstream>
#include <set>

#include "compile/model.h"
#include "train/folder_fixture_test.h"
#include "train/prefetch.h"
#include "world/real/helper_thread.h"
#include "world/real/parking.h"
#include "world/real/real_world.h"

using namespace tutti;

namespace {

// A file of words, each as wide as T.
template <class T>
void write_words(const std::string& path, const std::vector<T>& words, std::string head = {}) {
  std::ofstream file(path, std::ios::binary);
  file << head;
  file.write(reinterpret_cast<const char*>(words.data()),
             static_cast<std::streamsize>(words.size() * sizeof(T)));
}

std::string llm_header(int32_t magic, int32_t version, int32_t count) {
  std::string head(1024, '\0');
  std::byte* at = as_mutable_bytes(head).data();
  store_le(at, magic);
  store_le(at + 4, version);
  store_le(at + 8, count);
  return head;
}

Result<std::shared_ptr<const Tokens>> opened(const std::string& path) {
  RealWorld world;
  return world.run(open_tokens(world.disk(), path));
}

void check_refused(const std::string& path, std::string_view words) {
  const auto tokens = opened(path);
  REQUIRE_FALSE(tokens.has_value());
  CHECK_MESSAGE(tokens.error().text().find(words) != std::string::npos, tokens.error().text());
  CHECK(tokens.error().text().find(path) != std::string::npos);
}

std::shared_ptr<const Tokens> counting(uint16_t size) {
  std::vector<uint16_t> all(size);
  for (uint16_t i = 0; i < size; ++i) all[i] = i;
  return std::make_shared<const Tokens>(Tokens::of(std::move(all), "counting"));
}

// The inputs of a model, with memory.
struct Inputs {
  Inputs(int64_t batch, int64_t time) {
    const Type type{DType::i32, {{"batch", batch}, {"time", time}}};
    for (const std::string name : {"tokens", "targets"}) {
      memory.emplace_back(static_cast<size_t>(type.elements()));
      tensors.push_back({.name = name, .type = type, .data = nullptr});
    }
    for (size_t i = 0; i < 2; ++i) tensors[i].data = reinterpret_cast<std::byte*>(memory[i].data());
  }
  std::vector<std::vector<int32_t>> memory;
  std::vector<BatchTensor> tensors;
};

}  // namespace

TEST_CASE("token files of nanoGPT and llm.c are read where they lie") {
  const TestFolder folder;
  const std::string path = folder / "a.bin";
  write_words<uint16_t>(path, {7, 65535, 9});
  auto tokens = opened(path);
  REQUIRE_MESSAGE(tokens.has_value(), tokens.error().text());
  CHECK((*tokens)->size() == 3);
  CHECK((**tokens)[1] == 65535);

  write_words<uint16_t>(path, {7, 8}, llm_header(20240520, 1, 2));
  tokens = opened(path);
  REQUIRE_MESSAGE(tokens.has_value(), tokens.error().text());
  CHECK((*tokens)->size() == 2);
  CHECK((**tokens)[1] == 8);

  write_words<uint32_t>(path, {7, 128'000, 9}, llm_header(20240801, 7, 3));
  tokens = opened(path);
  REQUIRE_MESSAGE(tokens.has_value(), tokens.error().text());
  CHECK((*tokens)->size() == 3);
  CHECK((**tokens)[1] == 128'000);
}

TEST_CASE("token files that are cut short, empty or of another version are refused") {
  const TestFolder folder;
  const std::string path = folder / "a.bin";
  write_words<uint16_t>(path, {7}, llm_header(20240520, 1, 2));
  check_refused(path, "2 tokens but has 2 bytes");
  write_words<uint16_t>(path, {7, 8}, llm_header(20240520, 2, 2));
  check_refused(path, "version 2");
  write_words<uint8_t>(path, {7, 8, 9});
  check_refused(path, "odd number");
  write_words<uint8_t>(path, {});
  check_refused(path, "empty");
  check_refused(folder / "none.bin", "No such file");
}

TEST_CASE("a batch is windows of the tokens and what comes next in them") {
  const auto tokens = counting(100);
  Inputs inputs(4, 8);
  TokenBatches batches(tokens, {.seed = 3, .vocabulary = 100});
  REQUIRE(batches.check(inputs.tensors));
  std::set<int32_t> starts;
  for (uint64_t step = 0; step < 500; ++step) {
    REQUIRE(batches.fill(step, inputs.tensors));
    for (size_t sample = 0; sample < 4; ++sample) {
      starts.insert(inputs.memory[0][sample * 8]);
      for (size_t i = 0; i < 8; ++i) {
        REQUIRE(inputs.memory[0][sample * 8 + i] ==
                inputs.memory[0][sample * 8] + static_cast<int32_t>(i));
        REQUIRE(inputs.memory[1][sample * 8 + i] == inputs.memory[0][sample * 8 + i] + 1);
      }
    }
  }
  // Every window there is, the first and the last too.
  CHECK(starts.size() == 92);
  CHECK(*starts.begin() == 0);
  CHECK(*starts.rbegin() == 91);
}

TEST_CASE("samples follow from the seed and the step alone") {
  Inputs first(3, 5);
  Inputs second(3, 5);
  TokenBatches batches(counting(1000), {.seed = 3, .vocabulary = 1000});
  TokenBatches again(counting(1000), {.seed = 3, .vocabulary = 1000});
  TokenBatches other(counting(1000), {.seed = 4, .vocabulary = 1000});
  REQUIRE(batches.fill(7, first.tensors));
  REQUIRE(again.fill(8, second.tensors));
  CHECK(first.memory != second.memory);
  REQUIRE(again.fill(7, second.tensors));
  CHECK(first.memory == second.memory);
  REQUIRE(other.fill(7, second.tensors));
  CHECK(first.memory != second.memory);
}

TEST_CASE("consecutive windows go through all of a text, and begin again") {
  Inputs inputs(2, 4);
  TokenBatches batches(counting(15),
                       {.seed = 0, .vocabulary = 15, .order = SampleOrder::consecutive});
  std::vector<int32_t> starts;
  for (uint64_t step = 0; step < 2; ++step) {
    REQUIRE(batches.fill(step, inputs.tensors));
    starts.push_back(inputs.memory[0][0]);
    starts.push_back(inputs.memory[0][4]);
  }
  CHECK(starts == std::vector<int32_t>{0, 4, 8, 0});
}

TEST_CASE("tokens outside of the vocabulary are refused, with file and place") {
  std::vector<uint32_t> all(100, 1);
  all[60] = 50;
  const auto tokens = std::make_shared<const Tokens>(Tokens::of(std::move(all), "x.bin"));
  Inputs inputs(1, 4);
  TokenBatches batches(tokens, {.seed = 0, .vocabulary = 50});
  const auto checked = batches.check(inputs.tensors);
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().text().find("x.bin: token 50 at place 60 (byte 240)") != std::string::npos);

  const auto later = std::make_shared<const Tokens>(tokens->part(55, 20));
  const auto again = TokenBatches(later, {.seed = 0, .vocabulary = 50}).check(inputs.tensors);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().text().find("token 50 at place 60") != std::string::npos);
  const auto end = std::make_shared<const Tokens>(tokens->part(61, 39));
  CHECK(TokenBatches(end, {.seed = 0, .vocabulary = 50}).check(inputs.tensors).has_value());
}

TEST_CASE("texts too short for a sample, and models that want no tokens, are refused") {
  Inputs inputs(1, 8);
  CHECK(TokenBatches(counting(9), {.vocabulary = 9}).check(inputs.tensors).has_value());
  const auto few = TokenBatches(counting(8), {.vocabulary = 9}).check(inputs.tensors);
  CHECK(few.error().text().find("has 8 tokens, fewer than the 9") != std::string::npos);
  inputs.tensors.push_back({.name = "image", .type = {DType::f32, {}}, .data = nullptr});
  const auto other = TokenBatches(counting(9), {.vocabulary = 9}).check(inputs.tensors);
  CHECK(other.error().text().find("image") != std::string::npos);
}

TEST_CASE("data that were made ahead are those of their step, also after a jump") {
  const auto tokens = counting(1000);
  const RealParking clock;
  HelperThread helper;
  Inputs expected(3, 5);
  TokenBatches ahead(tokens, {.seed = 3, .vocabulary = 1000});
  TokenBatches plain(tokens, {.seed = 3, .vocabulary = 1000});
  Prefetch prefetch(ahead, helper, clock, expected.tensors);
  for (const uint64_t step : {0, 1, 2, 9, 10, 4, 4}) {
    CAPTURE(step);
    const auto taken = prefetch.take(step, EpochWatch());
    REQUIRE(taken.has_value());
    REQUIRE(plain.fill(step, expected.tensors));
    const auto* got = reinterpret_cast<const int32_t*>((**taken)[1].data);
    CHECK(std::equal(expected.memory[1].begin(), expected.memory[1].end(), got));
  }
}
