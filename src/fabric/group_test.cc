#include "fabric/group.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/seeds_test.h"
#include "fabric/fabric_fixture_test.h"

namespace tutti {
namespace {

float value_at(uint32_t rank, uint64_t i) {
  return static_cast<float>(static_cast<int>((rank * 131 + i * 7) % 1000)) * 0.37F - 100;
}

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

// The plain tree over all ranks.
float sum_of_all(uint32_t ranks, uint64_t i) {
  std::vector<float> lanes;
  for (uint32_t rank = 0; rank < ranks; ++rank) lanes.push_back(value_at(rank, i));
  for (size_t step = 1; step < lanes.size(); step *= 2)
    for (size_t lane = 0; lane + step < lanes.size(); lane += 2 * step)
      lanes[lane] += lanes[lane + step];
  return lanes[0];
}

TEST_CASE("an all_reduce gives everybody the sum, whatever the size and wherever the memory") {
  for (const uint32_t ranks : {1U, 2U, 3U, 4U, 8U}) {
    on_ranks(ranks, [&](Fabric& fabric) {
      Group& world = *fabric.world();
      for (const uint64_t elements : {0UL, 1UL, 7UL, 1024UL, 8192UL, 8193UL, 3 + seeds(100'000)}) {
        for (const bool in_heap : {false, true}) {
          std::vector<float> own(elements);
          float* data = own.data();
          uint64_t offset = 0;
          if (in_heap) {
            offset = *fabric.heap().allocate(elements * 4);
            data = reinterpret_cast<float*>(fabric.heap().at(offset));
          }
          for (uint64_t i = 0; i < elements; ++i) data[i] = value_at(fabric.rank(), i);
          const auto done = world.run({.kind = CallKind::all_reduce,
                                       .elements = elements,
                                       .input = bytes_of(data),
                                       .output = bytes_of(data),
                                       .site = "test"});
          REQUIRE_MESSAGE(done.has_value(), done.error().text());
          uint64_t wrong = 0;
          for (uint64_t i = 0; i < elements; ++i) wrong += data[i] != sum_of_all(ranks, i);
          CHECK(wrong == 0);
          if (in_heap) fabric.heap().free(offset);
        }
      }
    });
  }
}

TEST_CASE("a shared output is written once and read by all") {
  on_ranks(4, [](Fabric& fabric) {
    Group& world = *fabric.world();
    constexpr uint64_t kElements = 50'001;
    auto* shared = reinterpret_cast<float*>(*world.allocate_shared(kElements * 4));
    const uint64_t offset = *fabric.heap().allocate(kElements * 4);
    auto* input = reinterpret_cast<float*>(fabric.heap().at(offset));
    for (int round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < kElements; ++i) input[i] = value_at(fabric.rank(), i + round);
      REQUIRE(world
                  .run({.kind = CallKind::all_reduce,
                        .elements = kElements,
                        .input = bytes_of(input),
                        .output = bytes_of(shared),
                        .shared_output = true})
                  .has_value());
      uint64_t wrong = 0;
      for (uint64_t i = 0; i < kElements; ++i) wrong += shared[i] != sum_of_all(4, i + round);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bits depend on the lanes, not on how many ranks hold them") {
  constexpr uint32_t kLanes = 8;
  constexpr uint64_t kElements = 20'000;
  std::vector<float> expected(kElements);
  for (uint64_t i = 0; i < kElements; ++i) expected[i] = sum_of_all(kLanes, i);
  for (uint32_t ranks = 1; ranks <= kLanes; ++ranks) {
    on_ranks(ranks, [&](Fabric& fabric) {
      std::vector<std::vector<float>> held;
      Call call{.kind = CallKind::all_reduce, .elements = kElements, .lanes = kLanes};
      const LaneRange mine = share_of_lanes(kLanes, ranks, fabric.rank());
      for (const LaneRange node : whole_nodes(mine, kLanes)) {
        std::vector<float> joined(kElements);
        for (uint64_t i = 0; i < kElements; ++i) {
          std::vector<float> lanes;
          for (uint32_t lane = 0; lane < node.count; ++lane)
            lanes.push_back(value_at(node.first + lane, i));
          for (size_t step = 1; step < lanes.size(); step *= 2)
            for (size_t lane = 0; lane + step < lanes.size(); lane += 2 * step)
              lanes[lane] += lanes[lane + step];
          joined[i] = lanes[0];
        }
        held.push_back(std::move(joined));
        call.parts.push_back({.lanes = node});
      }
      for (size_t i = 0; i < held.size(); ++i) call.parts[i].input = bytes_of(held[i].data());
      std::vector<float> out(kElements);
      call.output = bytes_of(out.data());
      const auto done = fabric.world()->run(call);
      REQUIRE_MESSAGE(done.has_value(), done.error().text());
      CHECK(out == expected);
    });
  }
}

TEST_CASE("the other collectives move what they should") {
  for (const uint32_t ranks : {1U, 2U, 3U, 5U}) {
    for (const uint64_t each : {1UL, 33UL, 40'000UL}) {
      on_ranks(ranks, [&](Fabric& fabric) {
        Group& world = *fabric.world();
        const uint32_t rank = fabric.rank();
        std::vector<float> all(each * ranks);
        std::vector<float> own(each);
        for (uint64_t i = 0; i < each; ++i) own[i] = value_at(rank, i);
        const auto run = [&](Call call) {
          const auto done = world.run(std::move(call));
          REQUIRE_MESSAGE(done.has_value(), done.error().text());
        };

        run({.kind = CallKind::all_gather,
             .elements = each,
             .input = bytes_of(own.data()),
             .output = bytes_of(all.data())});
        for (uint32_t r = 0; r < ranks; ++r)
          CHECK(all[r * each + each / 2] == value_at(r, each / 2));

        std::vector<float> part(each);
        for (uint64_t i = 0; i < all.size(); ++i) all[i] = value_at(rank, i);
        run({.kind = CallKind::reduce_scatter,
             .elements = each * ranks,
             .input = bytes_of(all.data()),
             .output = bytes_of(part.data())});
        for (uint64_t i = 0; i < each; i += 13)
          CHECK(part[i] == sum_of_all(ranks, rank * each + i));

        const uint32_t root = ranks - 1;
        std::vector<float> told(each);
        run({.kind = CallKind::broadcast,
             .elements = each,
             .input = bytes_of(own.data()),
             .output = bytes_of(told.data()),
             .root = root});
        CHECK(told[each - 1] == value_at(root, each - 1));

        std::vector<float> swapped(each * ranks);
        run({.kind = CallKind::all_to_all,
             .elements = each,
             .input = bytes_of(all.data()),
             .output = bytes_of(swapped.data())});
        for (uint32_t r = 0; r < ranks; ++r) CHECK(swapped[r * each] == value_at(r, rank * each));

        std::vector<float> gathered(each * ranks);
        run({.kind = CallKind::gather,
             .elements = each,
             .input = bytes_of(own.data()),
             .output = bytes_of(gathered.data()),
             .root = root});
        if (rank == root) CHECK(gathered[each - 1] == value_at(0, each - 1));

        run({.kind = CallKind::scatter,
             .elements = each,
             .input = bytes_of(all.data()),
             .output = bytes_of(part.data()),
             .root = root});
        CHECK(part[0] == value_at(root, rank * each));

        run({.kind = CallKind::shift,
             .elements = each,
             .input = bytes_of(own.data()),
             .output = bytes_of(part.data()),
             .distance = 1});
        CHECK(part[0] == value_at((rank + ranks - 1) % ranks, 0));
        run({.kind = CallKind::barrier});
      });
    }
  }
}

TEST_CASE("shares of all_gather and all_to_all may be uneven, also empty") {
  on_ranks(3, [](Fabric& fabric) {
    const uint32_t rank = fabric.rank();
    const uint64_t mine = rank * 10'000;  // nothing, small and large
    std::vector<float> own(mine, static_cast<float>(rank));
    std::vector<float> all(30'000);
    REQUIRE(fabric.world()
                ->run({.kind = CallKind::all_gather,
                       .elements = mine,
                       .input = bytes_of(own.data()),
                       .output = bytes_of(all.data())})
                .has_value());
    CHECK(all[9'999] == 1);
    CHECK(all[10'000] == 2);
    CHECK(all[29'999] == 2);

    // Rank r sends s elements of value r to rank s.
    std::vector<float> out(3, static_cast<float>(rank));
    std::vector<float> in(3UL * rank);
    REQUIRE(fabric.world()
                ->run({.kind = CallKind::all_to_all,
                       .input = bytes_of(out.data()),
                       .output = bytes_of(in.data()),
                       .counts = {0, 1, 2},
                       .incoming = {rank, rank, rank}})
                .has_value());
    for (uint32_t i = 0; i < in.size(); ++i) CHECK(in[i] == static_cast<float>(i / rank));
  });
}

TEST_CASE("an update sees every reduced block once, in order") {
  on_ranks(2, [](Fabric& fabric) {
    constexpr uint64_t kEach = 30'001;
    std::vector<float> gradient(2 * kEach, 1);
    std::vector<float> weights(kEach, 10);
    std::vector<float> reduced(kEach);
    uint64_t next = 0;
    REQUIRE(fabric.world()
                ->run({.kind = CallKind::reduce_scatter,
                       .elements = 2 * kEach,
                       .input = bytes_of(gradient.data()),
                       .output = bytes_of(reduced.data()),
                       .update =
                           [&](uint64_t first, std::byte* block, uint64_t elements) {
                             CHECK(first == next);
                             next += elements;
                             const auto* values = reinterpret_cast<const float*>(block);
                             for (uint64_t i = 0; i < elements; ++i)
                               weights[first + i] -= values[i];
                           }})
                .has_value());
    CHECK(next == kEach);
    CHECK(weights == std::vector<float>(kEach, 8));
  });
}

TEST_CASE("calls begun one after the other are done in that order, also by polling") {
  on_ranks(3, [](Fabric& fabric) {
    Group& world = *fabric.world();
    std::vector<std::vector<float>> data(20, std::vector<float>(5'000, 1));
    std::vector<std::shared_ptr<Operation>> begun;
    for (auto& each : data)
      begun.push_back(*world.start({.kind = CallKind::all_reduce,
                                    .elements = each.size(),
                                    .input = bytes_of(each.data()),
                                    .output = bytes_of(each.data())}));
    while (!*world.poll(*begun.back())) std::this_thread::yield();
    for (const auto& operation : begun) CHECK(operation->done());
    for (const auto& each : data) CHECK(each == std::vector<float>(5'000, 3));
  });
}

TEST_CASE("groups of some ranks work beside each other") {
  on_ranks(4, [](Fabric& fabric) {
    const uint32_t rank = fabric.rank();
    const std::vector<uint32_t> row =
        rank < 2 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{3, 2};
    const std::vector<uint32_t> column =
        rank % 2 == 0 ? std::vector<uint32_t>{0, 2} : std::vector<uint32_t>{1, 3};
    const auto rows = *fabric.group(row, "row");
    const auto columns = *fabric.group(column, "column");
    for (int round = 0; round < 50; ++round) {
      float value = static_cast<float>(rank);
      Call call{.kind = CallKind::all_reduce,
                .elements = 1,
                .input = bytes_of(&value),
                .output = bytes_of(&value)};
      REQUIRE(rows->run(call).has_value());
      CHECK(value == (rank < 2 ? 1 : 5));
      REQUIRE(columns->run(call).has_value());
      CHECK(value == 6);
    }
    CHECK(fabric.group({0, 1, 1}, "twice").error().code() == Code::invalid);
    CHECK(fabric.group({7}, "nobody").error().code() == Code::invalid);
  });
}

TEST_CASE("calls that do not fit each other are told with both places") {
  on_ranks(3, [](Fabric& fabric) {
    std::vector<float> data(10'000);
    Call call{.kind = CallKind::all_reduce,
              .elements = fabric.rank() == 1 ? 9'999U : 10'000U,
              .input = bytes_of(data.data()),
              .output = bytes_of(data.data()),
              .site = fabric.rank() == 1 ? "odd.py:7" : "train.py:41"};
    const auto done = fabric.world()->run(call);
    REQUIRE(!done.has_value());
    CHECK(done.error().code() == Code::invalid);
    CHECK(done.error().text().find("9999 f32, sum at odd.py:7") != std::string::npos);
    CHECK(done.error().text().find("10000 f32, sum at train.py:41") != std::string::npos);
    CHECK(!fabric.world()->run({}).has_value());  // the group is over
  });
}

TEST_CASE("whoever does not come is named, with what it did instead") {
  on_ranks(3, [](Fabric& fabric) {
    Group& world = *fabric.world();
    REQUIRE(world.run({.kind = CallKind::barrier, .site = "warmup.py:3"}).has_value());
    if (fabric.rank() == 2) {
      std::this_thread::sleep_for(300ms);
      REQUIRE(world.run({.kind = CallKind::barrier, .site = "late.py:1"}).has_value());
      return;
    }
    auto operation = *world.start({.kind = CallKind::barrier, .site = "train.py:9"});
    const auto late = world.wait(*operation, 50ms);
    REQUIRE(!late.has_value());
    CHECK(late.error().code() == Code::deadline);
    CHECK(late.error().text().find("rank 2 (whose last was call 1, barrier at warmup.py:3)") !=
          std::string::npos);
    CHECK(world.wait(*operation).has_value());  // it may be waited for again
  });
}

TEST_CASE("a death ends the waits of all others at once, and the next epoch works") {
  SharedHost host(4);
  std::atomic<int> joined = 0;
  std::atomic<int> told = 0;
  host.run(
      [&](Fabric& fabric) {
        ++joined;
        if (fabric.rank() == 2) {  // dies: its keeper tells the others
          while (joined < 4) std::this_thread::yield();
          std::this_thread::sleep_for(20ms);
          host.die(2);
          fabric.was_killed();
          return;
        }
        std::vector<float> data(100'000, 1);
        Call call{.kind = CallKind::all_reduce,
                  .elements = data.size(),
                  .input = bytes_of(data.data()),
                  .output = bytes_of(data.data())};
        const auto done = fabric.world()->run(call);
        REQUIRE(!done.has_value());
        CHECK(done.error().code() == Code::unavailable);
        CHECK(fabric.lost() == std::vector<uint32_t>{2});
        CHECK(done.error().text().find("lost rank 2") != std::string::npos);
        if (++told == 3) host.begin_epoch(2, 2);
        const auto again = fabric.join(60s);
        REQUIRE_MESSAGE(again.has_value(), again.error().text());
        CHECK(fabric.epoch() == 2);
        data.assign(data.size(), 1);
        REQUIRE(fabric.world()->run(call).has_value());
        CHECK(data == std::vector<float>(data.size(), 4));
      },
      [&](Fabric& successor) {
        std::vector<float> data(100'000, 1);
        REQUIRE(successor.world()
                    ->run({.kind = CallKind::all_reduce,
                           .elements = data.size(),
                           .input = bytes_of(data.data()),
                           .output = bytes_of(data.data())})
                    .has_value());
        CHECK(data == std::vector<float>(data.size(), 4));
      });
}

TEST_CASE("a call begun after a death names the dead too") {
  SharedHost host(2);
  std::atomic<bool> other_joined = false;  // who dies before is not missed by the other
  host.run([&](Fabric& fabric) {
    if (fabric.rank() == 0) other_joined = true;
    if (fabric.rank() == 1) {
      while (!other_joined) std::this_thread::yield();
      host.die(1);
      fabric.was_killed();
      return;
    }
    while (fabric.lost().empty()) std::this_thread::yield();
    const auto done = fabric.world()->run({.kind = CallKind::barrier});
    REQUIRE(!done.has_value());
    CHECK(done.error().code() == Code::unavailable);
    CHECK(done.error().text() == "lost rank 1; join the next epoch");
  });
}

TEST_CASE("a join that was given up is gone on with") {
  SharedHost host(2);
  std::thread other([&] {
    std::this_thread::sleep_for(200ms);
    auto fabric = host.open(1);
    REQUIRE(fabric->join(60s).has_value());
    REQUIRE(fabric->world()->run({}).has_value());
  });
  auto fabric = host.open(0);
  int tries = 0;
  while (!fabric->join(20ms)) ++tries;
  CHECK(tries > 2);
  CHECK(fabric->world()->run({}).has_value());
  other.join();
}

TEST_CASE("who joins in vain is told for whom, and why") {
  SharedHost host(3);
  host.run(
      [&](Fabric& fabric) {
        const auto why = [&](Duration patience) {
          const auto joined = fabric.join(patience);
          REQUIRE(!joined.has_value());
          CHECK(joined.error().code() == Code::deadline);
          return joined.error().text();
        };
        REQUIRE(fabric.world()->run({}).has_value());
        if (fabric.rank() == 2) {
          host.die(2);
          fabric.was_killed();
          return;
        }
        while (fabric.lost().empty()) std::this_thread::yield();
        CHECK(why(20ms).contains("the next epoch, which begins when rank 2 can be started again"));
        if (fabric.rank() == 1) {
          std::this_thread::sleep_for(200ms);
          host.begin_epoch(2, 2);
          std::this_thread::sleep_for(500ms);
        } else {
          while (tutti_control_epoch(&fabric.page()) == 1) std::this_thread::yield();
          const std::string missing = why(20ms);
          CHECK(missing.contains("rank 1 of 3 (which is still in an earlier epoch)"));
          CHECK(missing.contains("`tutti stuck JOB`"));
        }
        REQUIRE(fabric.join(60s).has_value());
        if (fabric.rank() == 0) {  // alone
          CHECK(why(20ms).contains("rank 1 (which has not asked for it)"));
          REQUIRE(fabric.join(60s).has_value());
        } else {
          std::this_thread::sleep_for(200ms);
          REQUIRE(fabric.join(60s).has_value());
        }
      },
      [&](Fabric& successor) { REQUIRE(successor.join(60s).has_value()); });
}

TEST_CASE("a rank that has left is not waited for") {
  on_ranks(3, [](Fabric& fabric) {
    Group& world = *fabric.world();
    float value = 1;
    Call call{.kind = CallKind::broadcast,
              .elements = 1,
              .input = bytes_of(&value),
              .output = bytes_of(&value)};
    REQUIRE(world.run(call).has_value());
    if (fabric.rank() == 1) return;
    const auto done = world.run(call);
    REQUIRE(!done.has_value());
    CHECK(done.error().text().starts_with("rank 1 has left"));
  });
}

// What a collective gives when input and output lie `apart` elements from each other, in one array.
std::vector<int32_t> overlapped(Fabric& fabric, Call call, uint64_t input, uint64_t output,
                                int64_t apart) {
  const uint64_t before = apart < 0 ? static_cast<uint64_t>(-apart) : 0;
  const uint64_t offset = *fabric.heap().allocate((input + output + 200'000) * 4);
  auto* first = reinterpret_cast<int32_t*>(fabric.heap().at(offset)) + before;
  for (uint64_t i = 0; i < input; ++i)
    first[i] = static_cast<int32_t>(i * 3 + 1000 * fabric.rank());
  call.type = DType::i32;
  call.input = bytes_of(first);
  call.output = reinterpret_cast<std::byte*>(first + apart);
  const auto done = fabric.world()->run(call);
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  std::vector<int32_t> got(first + apart, first + apart + output);
  fabric.heap().free(offset);
  return got;
}

TEST_CASE("an output may overlap its input in any way") {
  on_ranks(3, [](Fabric& fabric) {
    const uint32_t rank = fabric.rank();
    for (const uint64_t share : {10, 20'000}) {
      const uint64_t all = 3 * share;
      const struct {
        Call call;
        uint64_t input, output;
        std::vector<int64_t> apart;
      } cases[] = {
          {{.kind = CallKind::all_reduce, .elements = all}, all, all, {0, 5, -5}},
          {{.kind = CallKind::reduce_scatter, .elements = all},
           all,
           share,
           {0, static_cast<int64_t>(rank * share), 7, -7}},
          {{.kind = CallKind::all_gather, .elements = share},
           share,
           all,
           {0, -static_cast<int64_t>(rank * share), 3, -3}},
          {{.kind = CallKind::gather, .elements = share, .root = 1},
           share,
           rank == 1 ? all : 0,
           {0, -static_cast<int64_t>(rank * share), 3}},
          {{.kind = CallKind::all_to_all, .elements = share}, all, all, {0, 11, -11}},
          {{.kind = CallKind::shift, .elements = share}, share, share, {0, 1, -1}},
      };
      for (const auto& one : cases) {
        const auto far = static_cast<int64_t>(one.input);  // disjoint
        const auto wanted = overlapped(fabric, one.call, one.input, one.output, far);
        for (const int64_t apart : one.apart)
          CHECK(overlapped(fabric, one.call, one.input, one.output, apart) == wanted);
      }
    }
  });
}

TEST_CASE("calls that would write or read past an array are refused, whoever is wrong") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> in(100'000), out(100'000);
    const auto refused = [&](Call call) {
      call.input = bytes_of(in.data());
      call.output = reinterpret_cast<std::byte*>(out.data());
      auto group = fabric.group({0, 1}, "refused");
      REQUIRE(group.has_value());
      const auto done = (*group)->run(call);
      REQUIRE(!done.has_value());
      CHECK(done.error().code() == Code::invalid);
      return done.error().text();
    };
    CHECK(refused({.kind = CallKind::reduce_scatter, .elements = 1000, .output_elements = 499}) ==
          "reduce_scatter gives 500 elements, and its output has room for 499");
    CHECK(refused({.kind = CallKind::all_to_all, .elements = 10, .input_elements = 19}) ==
          "all_to_all takes 20 elements, and its input has 19");
    CHECK(refused({.kind = CallKind::all_to_all,
                   .input_elements = 4,
                   .output_elements = 5,
                   .counts = {2, 2},
                   .incoming = {3, 3}}) ==
          "all_to_all gives 6 elements, and its output has room for 5");
    for (const uint64_t share : {3, 30'000}) {
      // Only rank 0 has too little room, and only when it sees what the other brings.
      const uint64_t room = fabric.rank() == 0 ? 2 * share : 10 * share;
      const uint64_t mine = fabric.rank() == 0 ? share : 2 * share;
      const std::string text =
          refused({.kind = CallKind::all_gather, .elements = mine, .output_elements = room});
      CHECK(text.find(fmt::format("{} elements, and the output of rank 0 has room for {}",
                                  3 * share, 2 * share)) != std::string::npos);
    }
    // Equal parts that are not equal.
    const std::string text =
        refused({.kind = CallKind::all_to_all, .elements = fabric.rank() == 0 ? 10U : 20U});
    CHECK(text.starts_with("ranks do not call the same"));
  });
}

TEST_CASE("bad calls are refused before anybody waits") {
  on_ranks(2, [](Fabric& fabric) {
    Group& world = *fabric.world();
    std::vector<float> data(64 << 10);
    CHECK(world.start({.kind = CallKind::broadcast, .root = 2}).error().code() == Code::invalid);
    CHECK(world
              .start({.kind = CallKind::reduce_scatter,
                      .elements = 3,
                      .input = bytes_of(data.data()),
                      .output = bytes_of(data.data())})
              .error()
              .code() == Code::invalid);
    CHECK(world
              .start({.kind = CallKind::all_reduce,
                      .elements = 16,
                      .input = bytes_of(data.data()),
                      .output = bytes_of(data.data()),
                      .shared_output = true})
              .error()
              .code() == Code::invalid);
    REQUIRE(world.run({}).has_value());
  });
}

}  // namespace
}  // namespace tutti
