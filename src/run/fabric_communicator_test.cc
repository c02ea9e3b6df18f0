#include "run/fabric_communicator.h"

#include <atomic>
#include <thread>

#include "compile/graph_fixture_test.h"
#include "compile/program/lower.h"
#include "fabric/fabric_fixture_test.h"
#include "run/memory_test.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

// The sum over five lanes of a vector, of which this worker brings the nodes of its own.
Graph summing(LaneRange own) {
  std::string inputs;
  std::string operands;
  const auto nodes = whole_nodes(own, 5);
  for (size_t i = 0; i < nodes.size(); ++i) {
    inputs += fmt::format("{}%p{}: f32[n=1000]", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}%p{}", i == 0 ? "" : ", ", i);
  }
  return graph_of(fmt::format(R"(graph g({}) {{
    %s = lane_all_reduce({}) {{axis="dp", lanes=5, first={}, count={}}}
    %y = mul(%s, %s)
    return %y as "y"
  }})",
                              inputs, operands, own.first, own.count));
}

float value_at(uint32_t lane, int64_t i) {
  return static_cast<float>((lane * 131 + i * 7) % 1000) * 0.37F - 100;
}

// Lanes joined as the tree has it: ((01)(23))4.
float joined(LaneRange node, int64_t i) {
  if (node.count == 1) return value_at(node.first, i);
  const uint32_t half = std::bit_ceil(node.count) / 2;
  return joined({node.first, half}, i) + joined({node.first + half, node.count - half}, i);
}

}  // namespace

TEST_CASE("a program sums lanes with other workers, in the order of the tree") {
  for (const uint32_t workers : {2U, 3U}) {
    SharedHost host(workers, 64 << 20);
    host.run([&](Fabric& fabric) {
      const LaneRange own = share_of_lanes(5, workers, fabric.rank());
      auto program = lower_to_program(summing(own));
      REQUIRE_MESSAGE(program.has_value(), program.error().text());
      ThreadTeam team(2);
      TestDevice device(team);
      auto loaded = device.cpu.load(*program);
      REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
      std::vector<Array> inputs;
      for (const LaneRange node : whole_nodes(own, 5)) {
        Array array{{DType::f32, {{"n", 1000}}}, {}};
        for (int64_t i = 0; i < 1000; ++i) array.values.push_back(joined(node, i));
        inputs.push_back(std::move(array));
      }
      ProgramMemory memory(**loaded, inputs);
      FabricCommunicator communicator({{"dp", fabric.world()}}, fabric.parking());
      ProgramCall call = memory.call();
      CHECK((*loaded)->run(call).error().text().find("has none") != std::string::npos);
      call.communicator = &communicator;
      for (int round = 0; round < 3; ++round) {
        const auto done = (*loaded)->run(call);
        REQUIRE_MESSAGE(done.has_value(), done.error().text());
        const Array y = memory.results()[0];
        for (int64_t i = 0; i < 1000; ++i) {
          const float sum = joined({0, 5}, i);
          REQUIRE(y.values[static_cast<size_t>(i)] == sum * sum);
        }
      }
    });
  }
}

TEST_CASE("a collective of an axis that the mesh has not is refused") {
  SharedHost host(2, 64 << 20);
  host.run([&](Fabric& fabric) {
    FabricCommunicator communicator({{"dp", fabric.world()}}, fabric.parking());
    const auto begun = communicator.start(0, {.axis = "tp"});
    REQUIRE_FALSE(begun.has_value());
    CHECK(begun.error().text() == "the mesh has no axis 'tp'");
  });
}

TEST_CASE("the end of the epoch ends a program's wait for others") {
  SharedHost host(2, 64 << 20);
  std::atomic<bool> other_joined = false;  // who dies before is not missed by the other
  host.run([&](Fabric& fabric) {
    if (fabric.rank() == 0) other_joined = true;
    if (fabric.rank() == 1) {  // dies before it begins
      while (!other_joined) std::this_thread::yield();
      host.die(1);
      fabric.was_killed();
      return;
    }
    auto program = lower_to_program(summing({0, 2}));
    REQUIRE(program.has_value());
    ThreadTeam team(2);
    TestDevice device(team);
    auto loaded = device.cpu.load(*program);
    REQUIRE(loaded.has_value());
    ProgramMemory memory(**loaded, inputs_of(summing({0, 2})));
    FabricCommunicator communicator({{"dp", fabric.world()}}, fabric.parking());
    ProgramCall call = memory.call();
    call.communicator = &communicator;
    const auto done = (*loaded)->run(call);
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().code() == Code::unavailable);
  });
}
