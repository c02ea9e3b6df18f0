#include "fabric/bucket.h"

#include <doctest/doctest.h>

#include <cstring>

#include "fabric/fabric_fixture_test.h"

namespace tutti {
namespace {

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

float value_at(uint32_t rank, uint64_t tensor, uint64_t i) {
  return static_cast<float>((rank * 131 + tensor * 17 + i * 7) % 1000) * 0.37F - 100;
}

constexpr uint64_t kSizes[] = {3, 0, 1000, 17, 70'000, 1, 5'000, 0, 12'345};

struct Tensors {
  explicit Tensors(uint32_t rank) {
    for (const uint64_t size : kSizes) {
      auto& data = values.emplace_back(size);
      for (uint64_t i = 0; i < size; ++i) data[i] = value_at(rank, values.size(), i);
    }
  }
  std::vector<BucketTensor> given() {
    std::vector<BucketTensor> tensors;
    for (auto& data : values)
      tensors.push_back({.elements = data.size(),
                         .inputs = {bytes_of(data.data())},
                         .output = bytes_of(data.data())});
    return tensors;
  }
  std::vector<std::vector<float>> values;
};

TEST_CASE("sums in buckets of any size are those of single calls") {
  on_ranks(3, [](Fabric& fabric) {
    Tensors expected(fabric.rank());
    for (auto& data : expected.values)
      REQUIRE(fabric.world()
                  ->run({.kind = CallKind::all_reduce,
                         .op = ReduceOp::mean,
                         .elements = data.size(),
                         .input = bytes_of(data.data()),
                         .output = bytes_of(data.data())})
                  .has_value());
    size_t most = ~size_t{0};
    for (const uint64_t bytes : {1UL, 100UL, 5'000UL, 300'000UL, 1UL << 30}) {
      Tensors own(fabric.rank());
      auto buckets =
          Buckets::make(fabric.world(), own.given(), {.op = ReduceOp::mean, .bytes = bytes});
      REQUIRE(buckets.has_value());
      CHECK((*buckets)->size() <= most);
      most = (*buckets)->size();
      // Each rank has them in an order of its own.
      for (uint32_t i = 0; i < std::size(kSizes); ++i) {
        const auto which = static_cast<uint32_t>((i * 2 + fabric.rank()) % std::size(kSizes));
        REQUIRE((*buckets)->ready(which).has_value());
      }
      REQUIRE((*buckets)->wait(60s).has_value());
      CHECK(own.values == expected.values);
    }
    CHECK(most == 1);
  });
}

TEST_CASE("a bucket begins when it is full and those before it have begun") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> data(4'000, 1);
    std::vector<BucketTensor> tensors;
    for (int i = 0; i < 4; ++i)
      tensors.push_back({.elements = 1'000,
                         .inputs = {bytes_of(data.data() + i * 1000)},
                         .output = bytes_of(data.data() + i * 1000)});
    auto made = Buckets::make(fabric.world(), tensors, {.bytes = 8'000, .site = "step.py:5"});
    REQUIRE(made.has_value());
    Buckets& buckets = **made;
    CHECK(buckets.size() == 2);
    const auto begun = [&] { return fabric.world()->calls(); };
    const uint32_t before = begun();
    for (int step = 1; step <= 3; ++step) {
      const uint32_t done = before + 2 * (step - 1);
      REQUIRE(buckets.ready(3).has_value());
      REQUIRE(buckets.ready(2).has_value());
      CHECK(begun() == done);  // the first is not full
      CHECK(buckets.wait(60s).error().text() == "tensor 0 of the buckets is not ready");
      REQUIRE(buckets.ready(0).has_value());
      CHECK(buckets.ready(0).error().code() == Code::invalid);
      CHECK(begun() == done);
      REQUIRE(buckets.ready(1).has_value());
      CHECK(begun() == done + 2);
      REQUIRE(buckets.wait(60s).has_value());
      CHECK(data == std::vector<float>(4'000, static_cast<float>(1 << step)));
    }
    CHECK(buckets.ready(4).error().code() == Code::invalid);
  });
}

TEST_CASE("a bucket for which there was no room when it was ready begins when it is waited for") {
  constexpr uint64_t kHeapBytes = 64 << 20;
  SharedHost host(2, kHeapBytes);
  host.run([](Fabric& fabric) {
    std::vector<float> data(1 << 20, 1);
    auto buckets = *Buckets::make(fabric.world(),
                                  {{.elements = data.size(),
                                    .inputs = {bytes_of(data.data())},
                                    .output = bytes_of(data.data())}},
                                  {});
    std::vector<uint64_t> taken;
    for (uint64_t bytes = kHeapBytes; bytes >= data.size(); bytes /= 2)
      while (const auto some = fabric.heap().allocate(bytes)) taken.push_back(*some);
    CHECK(buckets->ready(0).error().code() == Code::exhausted);
    CHECK(buckets->wait(60s).error().code() == Code::exhausted);
    for (const uint64_t some : taken) fabric.heap().free(some);
    REQUIRE(buckets->wait(60s).has_value());
    CHECK(data == std::vector<float>(data.size(), 2));
  });
}

TEST_CASE("tensors that lie side by side are not copied, nor are large ones") {
  on_ranks(2, [](Fabric& fabric) {
    auto* heap = reinterpret_cast<float*>(fabric.heap().at(*fabric.heap().allocate(40'000)));
    const auto copied = [&](std::vector<std::pair<uint64_t, uint64_t>> places) {
      std::vector<BucketTensor> tensors;
      for (const auto& [first, elements] : places) {
        std::fill_n(heap + first, elements, 2.0F);
        tensors.push_back({.elements = elements,
                           .inputs = {bytes_of(heap + first)},
                           .output = bytes_of(heap + first)});
      }
      auto buckets = *Buckets::make(fabric.world(), tensors, {.bytes = 20'000});
      for (uint32_t i = 0; i < tensors.size(); ++i) REQUIRE(buckets->ready(i).has_value());
      REQUIRE(buckets->wait(60s).has_value());
      for (const auto& [first, elements] : places)
        CHECK(std::count(heap + first, heap + first + elements, 4.0F) ==
              static_cast<int64_t>(elements));
      return buckets->copied_bytes();
    };
    CHECK(copied({{0, 10}, {10, 0}, {10, 20}, {30, 1000}}) == 0);
    CHECK(copied({{0, 10}, {11, 20}}) == 2 * 30 * 4);  // into the heap, and back
    CHECK(copied({{5'000, 5'000}, {0, 10}}) == 0);
  });
}

TEST_CASE("types have buckets of their own") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> reals(6, 1.5F);
    std::vector<int64_t> numbers(6, 3);
    std::vector<BucketTensor> tensors;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back({.elements = 1,
                         .inputs = {bytes_of(reals.data() + i)},
                         .output = bytes_of(reals.data() + i)});
      tensors.push_back({.type = DType::i64,
                         .elements = 1,
                         .inputs = {bytes_of(numbers.data() + i)},
                         .output = bytes_of(numbers.data() + i)});
    }
    auto buckets = *Buckets::make(fabric.world(), tensors, {});
    CHECK(buckets->size() == 2);
    for (uint32_t i = 0; i < tensors.size(); ++i) REQUIRE(buckets->ready(i).has_value());
    REQUIRE(buckets->wait(60s).has_value());
    CHECK(reals == std::vector<float>(6, 3));
    CHECK(numbers == std::vector<int64_t>(6, 6));
  });
}

TEST_CASE("members whose tensors differ are told, also where there are as many elements") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> data(10);
    const uint64_t first = fabric.rank() == 0 ? 4 : 6;
    auto buckets = *Buckets::make(
        fabric.world(),
        {{.elements = first, .inputs = {bytes_of(data.data())}, .output = bytes_of(data.data())},
         {.elements = 10 - first,
          .inputs = {bytes_of(data.data() + first)},
          .output = bytes_of(data.data() + first)}},
        {});
    (void)buckets->ready(0);
    const auto begun = buckets->ready(1);
    const auto done = begun ? buckets->wait(60s) : begun;
    REQUIRE(!done.has_value());
    CHECK(done.error().text().contains("shape (4, 6)"));
    CHECK(done.error().text().contains("shape (6, 4)"));
    CHECK(Buckets::make(fabric.world(), {}, {.bytes = 0}).error().code() == Code::invalid);
    CHECK(Buckets::make(fabric.world(), {{.elements = 1}}, {}).error().code() == Code::invalid);
  });
}

}  // namespace
}  // namespace tutti
