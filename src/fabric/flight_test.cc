#include "fabric/flight.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "base/seeds_test.h"
#include "fabric/fabric_fixture_test.h"
#include "fabric/flight_reader.h"
#include "fabric/parcel.h"

namespace tutti {
namespace {

// As an agent reads it: by what the control page says.
SeenFlight read_of(Fabric& fabric, bool whole = true) {
  const tutti_control_page& page = fabric.page();
  const uint64_t bytes = whole ? page.record_bytes : page.record_brief;
  auto seen = read_flight({fabric.heap().at(page.record_offset), bytes});
  REQUIRE_MESSAGE(seen.has_value(), seen.error().text());
  return *seen;
}

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

TEST_CASE("every call is in the record, with its number, size and place") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> data(100'000);
    Group& world = *fabric.world();
    REQUIRE(world.run({.kind = CallKind::barrier, .site = "a.py:1"}).has_value());
    REQUIRE(world
                .run({.kind = CallKind::all_reduce,
                      .op = ReduceOp::max,
                      .elements = data.size(),
                      .input = bytes_of(data.data()),
                      .output = bytes_of(data.data()),
                      .site = "a.py:2"})
                .has_value());
    const SeenFlight seen = read_of(fabric);
    CHECK(seen.epoch == 1);
    CHECK(seen.rank == fabric.rank());
    CHECK(seen.world_size == 2);
    CHECK_FALSE(seen.joining);
    CHECK_FALSE(seen.waits_in.has_value());
    REQUIRE(seen.groups.size() == 1);
    CHECK(seen.groups[0].name == "world");
    CHECK(seen.groups[0].ranks == RangeSet(0, 1));
    CHECK(seen.groups[0].begun == 2);
    CHECK(seen.groups[0].now.call == 2);
    REQUIRE(seen.calls.size() == 2);
    CHECK(seen.calls[0].text() == "call 1, barrier");
    CHECK(seen.calls[1].text() == "call 2, all_reduce of 100000 f32, max");
    CHECK(seen.calls[1].site == "a.py:2");
    CHECK(seen.calls[1].bytes() == 400'000);
    for (const SeenCall& call : seen.calls) {
      CHECK(call.phase == FlightPhase::done);
      CHECK(call.ended_ns >= call.began_ns);
    }
    CHECK(read_of(fabric, false).calls.empty());
    CHECK(read_of(fabric, false).groups[0].now.site == "a.py:2");
  });
}

TEST_CASE("a call that is waited in is shown with its phase, until it is done") {
  SharedHost host(2);
  std::atomic<bool> may_go = false;
  host.run([&](Fabric& fabric) {
    std::vector<float> data(100'000);
    const Call call{.kind = CallKind::all_reduce,
                    .elements = data.size(),
                    .input = bytes_of(data.data()),
                    .output = bytes_of(data.data()),
                    .site = "wait.py:7"};
    if (fabric.rank() == 1) {
      while (!may_go) std::this_thread::yield();
      REQUIRE(fabric.world()->run(call).has_value());
      return;
    }
    auto first = fabric.world()->start(call);
    auto second = fabric.world()->start({.kind = CallKind::barrier});
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    CHECK_FALSE(fabric.world()->wait(**first, 30ms).has_value());
    SeenFlight seen = read_of(fabric);
    CHECK(seen.waits_in == 0);
    CHECK(seen.groups[0].now.phase == FlightPhase::arrived);
    CHECK(seen.groups[0].now.call == 1);
    CHECK(seen.groups[0].begun == 2);
    CHECK(seen.calls[1].phase == FlightPhase::begun);
    may_go = true;
    REQUIRE(fabric.world()->wait(**first, 60s).has_value());
    seen = read_of(fabric);
    CHECK_FALSE(seen.waits_in.has_value());
    CHECK(seen.calls[0].phase == FlightPhase::done);
    CHECK(seen.groups[0].now.call == 2);
    CHECK(seen.groups[0].now.phase == FlightPhase::arrived);
  });
}

TEST_CASE("a message that is waited for is shown, until it is there") {
  SharedHost host(2);
  std::atomic<bool> may_go = false;
  host.run([&](Fabric& fabric) {
    std::vector<std::byte> bytes(400);
    if (fabric.rank() == 1) {
      while (!may_go) std::this_thread::yield();
      auto sent = fabric.send({.rank = 0, .tag = 7, .bytes = bytes});
      REQUIRE(sent.has_value());
      REQUIRE(fabric.wait(**sent, 60s).has_value());
      return;
    }
    auto came = fabric.receive({.rank = 1, .tag = 7, .into = bytes, .site = "pipe.py:3"});
    REQUIRE(came.has_value());
    CHECK_FALSE(fabric.wait(**came, 30ms).has_value());
    SeenFlight seen = read_of(fabric);
    REQUIRE(seen.parcel.has_value());
    CHECK(seen.parcel->text() == "a message of 400 bytes from rank 1 with tag 7");
    CHECK(seen.parcel->site == "pipe.py:3");
    CHECK_FALSE(seen.joining);
    may_go = true;
    REQUIRE(fabric.wait(**came, 60s).has_value());
    CHECK_FALSE(read_of(fabric).parcel.has_value());
  });
}

TEST_CASE("members of a group are told, also with gaps") {
  on_ranks(6, [](Fabric& fabric) {
    const bool even = fabric.rank() % 2 == 0;
    auto group =
        fabric.group(even ? std::vector<uint32_t>{4, 0, 2} : std::vector<uint32_t>{1, 3, 5},
                     even ? "evens" : "odds");
    REQUIRE(group.has_value());
    const SeenFlight seen = read_of(fabric);
    REQUIRE(seen.groups.size() == 2);
    CHECK(seen.groups[1].name == (even ? "evens" : "odds"));
    CHECK(seen.groups[1].ranks.text() == (even ? "0,2,4" : "1,3,5"));
    CHECK(seen.groups[1].now.call == 0);
    CHECK_FALSE(seen.groups[1].now.under_way());
  });
}

TEST_CASE("calls that differ are in the record of whoever saw it") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<float> data(10 + fabric.rank());
    const auto done = fabric.world()->run({.kind = CallKind::all_reduce,
                                           .elements = data.size(),
                                           .input = bytes_of(data.data()),
                                           .output = bytes_of(data.data())});
    REQUIRE_FALSE(done.has_value());
    const SeenFlight seen = read_of(fabric);
    if (!seen.groups[0].failure.empty()) {
      CHECK(seen.groups[0].failure.find("do not call the same") != std::string::npos);
      CHECK(seen.groups[0].now.phase == FlightPhase::failed);
    }
  });
}

TEST_CASE("of many calls the last are kept, and the group knows its own") {
  on_ranks(1, [](Fabric& fabric) {
    auto group = *fabric.group({0}, "alone");
    REQUIRE(group->run({.kind = CallKind::barrier, .site = "early.py:1"}).has_value());
    for (int i = 0; i < 1000; ++i)
      REQUIRE(fabric.world()->run({.kind = CallKind::barrier}).has_value());
    const SeenFlight seen = read_of(fabric);
    REQUIRE(seen.calls.size() == kFlightCalls);
    CHECK(seen.earlier_calls == 1001 - kFlightCalls);
    for (size_t i = 0; i < seen.calls.size(); ++i)
      REQUIRE(seen.calls[i].call == 1000 - kFlightCalls + 1 + i);
    CHECK(seen.groups[1].now.site == "early.py:1");
  });
}

TEST_CASE("more lines than there is room for are called by the last of them") {
  on_ranks(1, [](Fabric& fabric) {
    for (uint32_t i = 0; i < kMostSites + 10; ++i)
      REQUIRE(fabric.world()
                  ->run({.kind = CallKind::barrier, .site = fmt::format("x.py:{}", i)})
                  .has_value());
    CHECK(read_of(fabric).groups[0].now.site == fmt::format("x.py:{}", kMostSites + 9));
  });
}

TEST_CASE("any bytes are read as something that makes sense, or refused") {
  const auto record = std::make_unique<FlightRecord>();
  const Bytes bytes = std::as_bytes(std::span(record.get(), 1));
  CHECK_FALSE(read_flight(bytes).has_value());
  CHECK_FALSE(read_flight(bytes.first(100)).has_value());
  std::mt19937 random(3);
  for (int round = 0; round < static_cast<int>(seeds(300)); ++round) {
    auto* raw = reinterpret_cast<uint8_t*>(record.get());
    for (size_t i = 0; i < sizeof(FlightRecord); ++i)
      raw[i] = static_cast<uint8_t>(round % 3 == 0 ? random() : random() % 3);
    record->magic = kFlightMagic;
    record->layout = kFlightLayout;
    record->world_size = 1 + random() % 64;
    record->rank = random() % record->world_size;
    record->groups_made = random() % 100;
    record->count = random() % 400;
    const auto seen = read_flight(bytes);
    REQUIRE(seen.has_value());
    CHECK(seen->groups.size() <= kMostGroups);
    for (const SeenCall& call : seen->calls) {
      REQUIRE(call.group < seen->groups.size());
      CHECK_FALSE(call.text().empty());
    }
    for (const SeenGroup& group : seen->groups) CHECK(group.ranks.size() <= group.size);
    if (seen->waits_in) CHECK(*seen->waits_in < seen->groups.size());
  }
  record->layout = kFlightLayout + 1;
  CHECK(read_flight(bytes).error().code() == Code::unsupported);
}

}  // namespace
}  // namespace tutti
