// Members that do not mean the same are told so, all of them, with what differs.
#include <doctest/doctest.h>

#include <numeric>

#include "fabric/fabric_fixture_test.h"

namespace tutti {
namespace {

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

// Of a call in a group of its own, on which the ranks do not agree.
std::string refused(Fabric& fabric, Call call) {
  std::vector<uint32_t> all(fabric.world_size());
  std::iota(all.begin(), all.end(), 0U);
  auto group = fabric.group(all, "odd");
  REQUIRE_MESSAGE(group.has_value(), group.error().text());
  call.site = fabric.rank() == 1 ? "odd.py:7" : "train.py:41";
  const auto done = (*group)->run(std::move(call));
  REQUIRE(!done.has_value());
  CHECK(done.error().code() == Code::invalid);
  CHECK(done.error().text().contains("odd.py:7"));
  CHECK(done.error().text().contains("train.py:41"));
  return done.error().text();
}

TEST_CASE("shapes that differ are told, also where there are as many elements") {
  on_ranks(3, [](Fabric& fabric) {
    const bool odd = fabric.rank() == 1;
    for (const uint64_t rows : {2UL, 20'000UL}) {
      std::vector<float> data(rows * 3);
      for (const CallKind kind : {CallKind::all_reduce, CallKind::broadcast, CallKind::shift}) {
        const std::string text =
            refused(fabric, {.kind = kind,
                             .elements = rows * 3,
                             .shape = odd ? std::vector<uint64_t>{3, rows} : std::vector{rows, 3UL},
                             .input = bytes_of(data.data()),
                             .output = bytes_of(data.data())});
        CHECK(text.contains(fmt::format("shape (3, {}) at odd.py:7", rows)));
        CHECK(text.contains(fmt::format("shape ({}, 3) at train.py:41", rows)));
      }
    }
  });
}

TEST_CASE("one dimension is as good as none, and what is gathered may have any shape") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> data(6, 1);
    std::vector<float> all(12);
    Call call{.kind = CallKind::all_reduce,
              .elements = 6,
              .input = bytes_of(data.data()),
              .output = bytes_of(data.data())};
    if (fabric.rank() == 1) call.shape = {6};
    CHECK(fabric.world()->run(call).has_value());
    call.kind = CallKind::all_gather;
    call.shape = fabric.rank() == 1 ? std::vector<uint64_t>{6, 1} : std::vector<uint64_t>{2, 3};
    call.output = bytes_of(all.data());
    CHECK(fabric.world()->run(call).has_value());
    CHECK(all == std::vector<float>(12, 2));
  });
}

TEST_CASE("words about calls that differ show what differs") {
  on_ranks(2, [](Fabric& fabric) {
    const bool odd = fabric.rank() == 1;
    std::vector<float> in(40'000), out(40'000);
    for (const uint64_t elements : {4UL, 20'000UL}) {
      const auto told = [&](Call call) {
        call.elements = elements;
        call.input = bytes_of(in.data());
        call.output = bytes_of(out.data());
        return refused(fabric, std::move(call));
      };
      const std::string shifted = told({.kind = CallKind::shift, .distance = odd ? 1 : 3});
      CHECK(shifted.contains("distance 1 at odd.py:7"));
      CHECK(shifted.contains("distance 3 at train.py:41"));
      const uint64_t first = odd ? 2 : 1;
      const std::vector<uint64_t> counts = {first, elements - first};
      const std::string scattered = told({.kind = CallKind::reduce_scatter, .counts = counts});
      CHECK(scattered.contains(fmt::format("counts 2, {} at odd.py:7", elements - 2)));
      CHECK(scattered.contains(fmt::format("counts 1, {} at train.py:41", elements - 1)));
      // Whoever has the root's data needs nobody else's.
      const std::string told_by = told({.kind = CallKind::broadcast, .root = odd ? 1U : 0U});
      CHECK(told_by.contains("root 1 at odd.py:7"));
      CHECK(told_by.contains("root 0 at train.py:41"));
      Call uneven{.kind = CallKind::all_to_all};
      if (odd) uneven.counts = uneven.incoming = {1, 1};
      CHECK(told(uneven).contains("uneven at odd.py:7"));
    }
  });
}

TEST_CASE(
    "calls that differ in nothing else are told of their kind, type, op, lanes and evenness") {
  on_ranks(2, [](Fabric& fabric) {
    const bool odd = fabric.rank() == 1;
    for (const uint64_t elements : {4UL, 20'000UL}) {
      std::vector<float> data(elements);
      const auto told = [&](Call call) {
        call.elements = elements;
        if (call.lanes == 0) call.input = bytes_of(data.data());
        call.output = bytes_of(data.data());
        return refused(fabric, std::move(call));
      };
      CHECK(told({.kind = odd ? CallKind::broadcast : CallKind::all_reduce})
                .contains(fmt::format("broadcast of {} f32, root 0 at odd.py:7", elements)));
      CHECK(told({.kind = CallKind::all_reduce, .type = odd ? DType::i32 : DType::f32})
                .contains(fmt::format("all_reduce of {} i32, sum at odd.py:7", elements)));
      CHECK(told({.kind = CallKind::all_reduce, .op = odd ? ReduceOp::max : ReduceOp::sum})
                .contains("f32, max at odd.py:7"));
      const uint32_t each = odd ? 2 : 1;
      CHECK(told({.kind = CallKind::all_reduce,
                  .lanes = 2 * each,
                  .parts = {{{fabric.rank() * each, each}, bytes_of(data.data())}}})
                .contains("4 lanes at odd.py:7"));
    }
    float nothing = 0;
    Call exchange{
        .kind = CallKind::all_to_all, .input = bytes_of(&nothing), .output = bytes_of(&nothing)};
    if (odd) exchange.counts = exchange.incoming = {0, 0};
    CHECK(refused(fabric, exchange).contains("uneven at odd.py:7"));
  });
}

TEST_CASE("a shared output that is not one place is refused, by all") {
  on_ranks(3, [](Fabric& fabric) {
    constexpr uint64_t kElements = 100'000;
    std::vector<uint32_t> all = {0, 1, 2};
    auto group = *fabric.group(all, "sharing");
    std::byte* shared = *group->allocate_shared(kElements * 4);
    std::byte* own = fabric.heap().at(*fabric.heap().allocate(kElements * 4));
    std::vector<float> data(kElements, 1);
    for (const CallKind kind : {CallKind::all_reduce, CallKind::all_gather}) {
      const uint64_t elements = kind == CallKind::all_reduce ? kElements : kElements / 3;
      const std::string text = refused(fabric, {.kind = kind,
                                                .elements = elements,
                                                .input = bytes_of(data.data()),
                                                .output = fabric.rank() == 1 ? own : shared,
                                                .shared_output = true});
      CHECK(text.contains("do not give the same memory for a shared output"));
    }
    // Or where it is shared on some alone.
    const std::string text = refused(fabric, {.kind = CallKind::all_reduce,
                                              .elements = kElements,
                                              .input = bytes_of(data.data()),
                                              .output = shared,
                                              .shared_output = fabric.rank() != 1});
    CHECK(text.contains("shared output at train.py:41"));
    CHECK(!text.contains("shared output at odd.py:7"));
  });
}

TEST_CASE("groups on which ranks disagree are told at once, and later ones work") {
  on_ranks(3, [](Fabric& fabric) {
    const bool odd = fabric.rank() == 1;
    const auto told = [&](std::vector<uint32_t> ranks, const std::string& name) {
      auto made = fabric.group(std::move(ranks), name, odd ? "odd.py:7" : "train.py:41");
      REQUIRE(!made.has_value());
      CHECK(made.error().code() == Code::invalid);
      CHECK(made.error().text().contains("odd.py:7"));
      CHECK(made.error().text().contains("train.py:41"));
      return made.error().text();
    };
    const auto works = [&] {
      auto made = fabric.group({0, 1, 2}, "later");
      REQUIRE_MESSAGE(made.has_value(), made.error().text());
      CHECK((*made)->run({}).has_value());
    };
    const std::string order =
        told(odd ? std::vector{2U, 1U, 0U} : std::vector{0U, 1U, 2U}, "order");
    CHECK(order.contains("rank 1"));
    CHECK(order.contains("for group order of ranks 2, 1, 0 at odd.py:7"));
    CHECK(order.contains("for group order of ranks 0, 1, 2 at train.py:41"));
    works();
    CHECK(told({0, 1, 2}, odd ? "B" : "A").contains("for group B of ranks 0, 1, 2 at odd.py:7"));
    works();
    for (const bool second : {false, true})  // made in another order
      (void)told({0, 1, 2}, odd != second ? "first" : "second");
    works();
  });
}

TEST_CASE("who waits for a group hears what the others wait for, and may ask again") {
  SharedHost host(3);
  host.timeout = 300ms;
  std::atomic<int> tried = 0;
  host.run([&](Fabric& fabric) {
    const bool wider = fabric.rank() == 1;
    const auto ask = [&] {
      auto made = fabric.group(wider ? std::vector{0U, 1U, 2U} : std::vector{0U, 1U}, "pair",
                               fmt::format("rank{}.py:1", fabric.rank()));
      REQUIRE(!made.has_value());
      CHECK(made.error().code() == Code::deadline);
      return made.error().text();
    };
    std::string text = fabric.rank() == 2 ? "" : ask();
    while (fabric.rank() == 0 && !text.contains("which waits for")) text = ask();
    if (fabric.rank() == 0)
      CHECK(text.contains(
          "for group pair of ranks 0, 1 at rank0.py:1: rank 1 (which waits for group pair of "
          "ranks 0, 1, 2 at rank1.py:1)"));
    ++tried;
    while (tried < 3) std::this_thread::yield();
    if (fabric.rank() == 2) return;
    Result<std::shared_ptr<Group>> again = fabric.group({0, 1}, "pair");
    while (!again) again = fabric.group({0, 1}, "pair");
    REQUIRE(again.has_value());
    CHECK((*again)->size() == 2);
    Result<std::shared_ptr<Operation>> barrier = (*again)->start({});
    REQUIRE(barrier.has_value());
    CHECK((*again)->wait(**barrier, 60s).has_value());
  });
}

TEST_CASE("a group that some make before a call and others after it is told with both places") {
  on_ranks(3, [](Fabric& fabric) {
    for (int round = 0; round < 2; ++round) {
      const auto make = [&] { return fabric.group({0, 1, 2}, "late", "train.py:41"); };
      const auto call = [&] {
        return fabric.world()->run({.kind = CallKind::barrier, .site = "odd.py:7"});
      };
      const auto told = [&](const auto& done) {
        REQUIRE(!done.has_value());
        CHECK(done.error().code() == Code::invalid);
        CHECK(done.error().text().contains("for group late of ranks 0, 1, 2 at train.py:41"));
        CHECK(done.error().text().contains("rank 1 calls barrier at odd.py:7, of group world"));
      };
      if (fabric.rank() == 1) told(call());
      if (fabric.rank() != 1 || round == 0) told(make());
      REQUIRE(fabric.join(60s).has_value());
      CHECK(make().has_value());
      CHECK(call().has_value());
    }
  });
}

TEST_CASE("a call that is only looked after for a while may come before a group, or after it") {
  on_ranks(2, [](Fabric& fabric) {
    const auto make = [&] { return fabric.group({0, 1}, "pair").has_value(); };
    if (fabric.rank() == 0) CHECK(make());
    auto barrier = *fabric.world()->start({});
    if (fabric.rank() == 1) {
      CHECK(fabric.world()->wait(*barrier, 300ms).error().code() == Code::deadline);
      CHECK(make());
    }
    CHECK(fabric.world()->wait(*barrier).has_value());
  });
}

TEST_CASE("all may join again in an epoch that goes on, also after they disagreed") {
  on_ranks(3, [](Fabric& fabric) {
    std::vector<float> data(50'000, 1);
    const auto sum = [&](uint64_t elements) {
      return fabric.world()->run({.kind = CallKind::all_reduce,
                                  .elements = elements,
                                  .input = bytes_of(data.data()),
                                  .output = bytes_of(data.data())});
    };
    for (int round = 0; round < 3; ++round) {
      const auto before = fabric.world();
      REQUIRE(sum(data.size()).has_value());
      REQUIRE(!sum(data.size() - fabric.rank()).has_value());
      const auto joined = fabric.join(60s);
      REQUIRE_MESSAGE(joined.has_value(), joined.error().text());
      CHECK(fabric.epoch() == 1);
      CHECK(fabric.world() != before);
      data.assign(data.size(), 1);
      REQUIRE(sum(data.size()).has_value());
      CHECK(data == std::vector<float>(data.size(), 3));
      CHECK(fabric.group({0, 1, 2}, "all").has_value());
    }
  });
}

}  // namespace
}  // namespace tutti
