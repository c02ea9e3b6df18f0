#include "fabric/fold.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/hash.h"

namespace tutti {
namespace {

// The tree as it is defined, one element at a time.
double plain_reference(const std::vector<float>& lanes, uint32_t first, uint32_t size) {
  if (size == 1) return lanes[first];
  const uint32_t half = size / 2;
  const auto left = static_cast<float>(plain_reference(lanes, first, half));
  if (first + half >= lanes.size()) return left;
  return left + static_cast<float>(plain_reference(lanes, first + half, half));
}

std::vector<std::vector<float>> random_lanes(uint32_t lanes, size_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(lanes, std::vector<float>(elements));
  for (auto& lane : all)
    for (float& value : lane) value = normal(random) * std::exp2(normal(random) * 4);
  return all;
}

template <class T>
std::vector<const std::byte*> pointers(const std::vector<std::vector<T>>& all) {
  std::vector<const std::byte*> found;
  for (const auto& each : all) found.push_back(reinterpret_cast<const std::byte*>(each.data()));
  return found;
}

void on_every_kernel(const auto& body) {
  for (const char* name : fold_kernels()) {
    CAPTURE(name);
    use_fold_kernel(name);
    body();
  }
  use_fold_kernel(fold_kernels().back());
}

TEST_CASE("lanes are joined in the order of the tree, whatever their number") {
  on_every_kernel([] {
    for (uint32_t lanes = 1; lanes <= 19; ++lanes) {
      const size_t elements = 37 + lanes;
      const auto all = random_lanes(lanes, elements, lanes);
      std::vector<float> out(elements);
      auto* target = reinterpret_cast<std::byte*>(out.data());
      fold(FoldTree::plain(lanes),
           {.sources = pointers(all), .targets = {&target, 1}, .elements = elements});
      for (size_t i = 0; i < elements; ++i) {
        std::vector<float> column;
        for (const auto& lane : all) column.push_back(lane[i]);
        CHECK(out[i] == static_cast<float>(plain_reference(column, 0, std::bit_ceil(lanes))));
      }
    }
  });
}

// Joins each holder's lanes into whole nodes first, and then the nodes.
std::vector<float> fold_by_holders(const std::vector<std::vector<float>>& all, uint32_t holders) {
  const auto lanes = static_cast<uint32_t>(all.size());
  const size_t elements = all[0].size();
  std::vector<LaneRange> nodes;
  std::vector<std::vector<float>> sums;
  for (uint32_t holder = 0; holder < holders; ++holder) {
    for (const LaneRange node : whole_nodes(share_of_lanes(lanes, holders, holder), lanes)) {
      std::vector<const std::byte*> sources;
      for (uint32_t lane = 0; lane < node.count; ++lane)
        sources.push_back(reinterpret_cast<const std::byte*>(all[node.first + lane].data()));
      std::vector<float> sum(elements);
      auto* target = reinterpret_cast<std::byte*>(sum.data());
      fold(FoldTree::plain(node.count),
           {.sources = sources, .targets = {&target, 1}, .elements = elements});
      nodes.push_back(node);
      sums.push_back(std::move(sum));
    }
  }
  std::vector<float> out(elements);
  auto* target = reinterpret_cast<std::byte*>(out.data());
  const auto tree = FoldTree::over(lanes, nodes);
  REQUIRE(tree.has_value());
  fold(*tree, {.sources = pointers(sums), .targets = {&target, 1}, .elements = elements});
  return out;
}

TEST_CASE("the bits do not depend on who joined which lanes beforehand") {
  on_every_kernel([] {
    for (const uint32_t lanes : {1U, 2U, 3U, 5U, 8U, 12U, 16U, 31U}) {
      const auto all = random_lanes(lanes, 1000, 7);
      const auto alone = fold_by_holders(all, 1);
      for (uint32_t holders = 2; holders <= lanes; ++holders)
        CHECK(fold_by_holders(all, holders) == alone);
    }
  });
}

TEST_CASE("every target gets the result, also when it is a source") {
  on_every_kernel([] {
    for (uint32_t lanes = 2; lanes <= 9; ++lanes) {
      for (const size_t elements : {0UL, 1UL, 15UL, 16UL, 1023UL, 5000UL}) {
        auto all = random_lanes(lanes, elements, 3);
        std::vector<float> expected(elements);
        auto* alone = reinterpret_cast<std::byte*>(expected.data());
        fold(FoldTree::plain(lanes), {.sources = pointers(all),
                                      .targets = {&alone, 1},
                                      .elements = elements,
                                      .streaming = true});
        std::vector<std::byte*> targets;
        for (auto& lane : all) targets.push_back(reinterpret_cast<std::byte*>(lane.data()));
        fold(FoldTree::plain(lanes),
             {.sources = pointers(all), .targets = targets, .elements = elements});
        for (const auto& lane : all) CHECK(lane == expected);
      }
    }
  });
}

TEST_CASE("halves are widened, joined as f32 and rounded once") {
  const auto bf16 = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);  // exact values only
  };
  on_every_kernel([&] {
    // 1 + 2^-8 + 2^-8 is 1.0078125 when joined as f32, and 1 when rounded after each step.
    std::vector<std::vector<uint16_t>> all(4, std::vector<uint16_t>(33));
    for (size_t i = 0; i < 33; ++i) {
      all[0][i] = bf16(1);
      all[1][i] = all[2][i] = bf16(0.00390625F);
      all[3][i] = 0;
    }
    std::vector<uint16_t> out(33);
    auto* target = reinterpret_cast<std::byte*>(out.data());
    fold(FoldTree::plain(4),
         {.type = DType::bf16, .sources = pointers(all), .targets = {&target, 1}, .elements = 33});
    for (const uint16_t value : out) CHECK(value == bf16(1.0078125F));
  });
}

TEST_CASE("every half survives being widened and narrowed, on every kernel alike") {
  std::vector<std::vector<uint16_t>> all(1, std::vector<uint16_t>(65536));
  for (size_t i = 0; i < 65536; ++i) all[0][i] = static_cast<uint16_t>(i);
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<uint64_t> digests;
    on_every_kernel([&] {
      std::vector<uint16_t> out(65536);
      auto* target = reinterpret_cast<std::byte*>(out.data());
      fold(FoldTree::plain(1),
           {.type = type, .sources = pointers(all), .targets = {&target, 1}, .elements = 65536});
      const uint32_t infinity = type == DType::f16 ? 0x7C00 : 0x7F80;
      for (size_t i = 0; i < 65536; ++i)
        if ((i & 0x7FFFU) <= infinity) CHECK(out[i] == i);
      digests.push_back(hash64(std::as_bytes(std::span(out))));
    });
    for (const uint64_t digest : digests) CHECK(digest == digests[0]);
  }
}

TEST_CASE("all kernels round f32 to f16 alike") {
  std::vector<std::vector<uint16_t>> halves(2, std::vector<uint16_t>(65536));
  std::mt19937 random(11);
  for (auto& lane : halves)
    for (auto& value : lane) value = static_cast<uint16_t>(random());
  // Sums of NaN and of infinities of both signs are NaN, of which no bits are promised.
  for (auto& lane : halves)
    for (auto& value : lane)
      if ((value & 0x7C00U) == 0x7C00U) value &= 0xBFFFU;
  std::vector<uint64_t> digests;
  on_every_kernel([&] {
    std::vector<uint16_t> out(65536);
    auto* target = reinterpret_cast<std::byte*>(out.data());
    fold(FoldTree::plain(2), {.type = DType::f16,
                              .sources = pointers(halves),
                              .targets = {&target, 1},
                              .elements = 65536});
    digests.push_back(hash64(std::as_bytes(std::span(out))));
  });
  for (const uint64_t digest : digests) CHECK(digest == digests[0]);
}

TEST_CASE("NaN wins, infinities are kept, and a mean divides by its lanes") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> all{
      {1, nan, infinity, 6}, {2, 5, 1, -infinity}, {3, 1, 2, 0}};
  const auto reduce = [&](ReduceOp op) {
    std::vector<float> out(4);
    auto* target = reinterpret_cast<std::byte*>(out.data());
    fold(
        FoldTree::plain(3),
        {.op = op, .divisor = 3, .sources = pointers(all), .targets = {&target, 1}, .elements = 4});
    return out;
  };
  on_every_kernel([&] {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min})
      CHECK(std::isnan(reduce(op)[1]));
    CHECK(reduce(ReduceOp::mean)[0] == 2);
    CHECK(reduce(ReduceOp::max)[0] == 3);
    CHECK(reduce(ReduceOp::min)[0] == 1);
    CHECK(reduce(ReduceOp::sum)[2] == infinity);
    CHECK(reduce(ReduceOp::min)[3] == -infinity);
  });
}

TEST_CASE("a mean of bytes divides by as many as there are, also by more than a byte holds") {
  on_every_kernel([] {
    for (const uint32_t lanes : {128U, 256U, 4096U}) {
      const std::vector<std::vector<int8_t>> all{{-128, 100, 0}};
      std::vector<int8_t> out(3);
      auto* target = reinterpret_cast<std::byte*>(out.data());
      FoldWork work{.type = DType::i8,
                    .op = ReduceOp::mean,
                    .divisor = lanes,
                    .sources = {},
                    .targets = {&target, 1},
                    .elements = 3};
      const auto sources = pointers(all);
      work.sources = sources;
      fold(FoldTree::plain(1), work);
      CHECK(out == std::vector<int8_t>{static_cast<int8_t>(lanes == 128 ? -1 : 0), 0, 0});
    }
  });
}

TEST_CASE("integers wrap, and divide towards zero") {
  on_every_kernel([] {
    const std::vector<std::vector<int8_t>> all{{127, -5, 4}, {1, -6, 5}};
    std::vector<int8_t> out(3);
    auto* target = reinterpret_cast<std::byte*>(out.data());
    FoldWork work{
        .type = DType::i8, .divisor = 2, .sources = {}, .targets = {&target, 1}, .elements = 3};
    const auto sources = pointers(all);
    work.sources = sources;
    fold(FoldTree::plain(2), work);
    CHECK(out == std::vector<int8_t>{-128, -11, 9});
    work.op = ReduceOp::mean;
    fold(FoldTree::plain(2), work);
    CHECK(out == std::vector<int8_t>{-64, -5, 4});
  });
}

template <class T>
void check_whole_numbers(DType type) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  std::vector<std::vector<T>> all{std::vector<T>(1001, kMost), std::vector<T>(1001, T{2})};
  all[1].back() = kLeast;
  std::vector<T> out(1001);
  auto* target = reinterpret_cast<std::byte*>(out.data());
  const auto sources = pointers(all);
  const auto joined = [&](ReduceOp op) {
    fold(FoldTree::plain(2),
         {.type = type, .op = op, .sources = sources, .targets = {&target, 1}, .elements = 1001});
    return std::pair{out.front(), out.back()};
  };
  CAPTURE(dtype_name(type));
  CHECK(joined(ReduceOp::sum) == std::pair{static_cast<T>(kLeast + 1), T(kMost + kLeast)});
  CHECK(joined(ReduceOp::max) == std::pair{kMost, kMost});
  CHECK(joined(ReduceOp::min) == std::pair{T{2}, kLeast});
}

TEST_CASE("whole numbers of every size wrap in sums, and compare with their signs") {
  on_every_kernel([] {
    check_whole_numbers<int8_t>(DType::i8);
    check_whole_numbers<int16_t>(DType::i16);
    check_whole_numbers<int32_t>(DType::i32);
    check_whole_numbers<int64_t>(DType::i64);
    check_whole_numbers<uint8_t>(DType::u8);
    check_whole_numbers<uint16_t>(DType::u16);
    check_whole_numbers<uint32_t>(DType::u32);
    check_whole_numbers<uint64_t>(DType::u64);
  });
}

TEST_CASE("lanes that are no node of the tree are refused") {
  const LaneRange crooked[] = {{0, 1}, {1, 2}, {3, 1}};
  CHECK(FoldTree::over(4, crooked).error().code() == Code::invalid);
  const LaneRange missing[] = {{0, 2}};
  CHECK(FoldTree::over(3, missing).error().message() == "nobody holds lanes 2 to 2");
  const LaneRange twice[] = {{0, 2}, {1, 1}};
  CHECK(!FoldTree::over(2, twice).has_value());
  CHECK(!FoldTree::over(0, {}).has_value());
}

TEST_CASE("copies of every length and alignment are exact") {
  on_every_kernel([] {
    std::vector<std::byte> from(3000);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    for (const bool streaming : {false, true}) {
      for (size_t length = 0; length < 600; length += 7) {
        for (size_t offset = 0; offset < 70; offset += 3) {
          std::vector<std::byte> to(800);
          copy_bytes(to.data() + offset, from.data() + offset / 2, length, streaming);
          CHECK(std::memcmp(to.data() + offset, from.data() + offset / 2, length) == 0);
          CHECK(to[offset + length] == std::byte{0});
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti
