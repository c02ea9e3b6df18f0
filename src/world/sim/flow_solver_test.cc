#include "world/sim/flow_solver.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "world/sim/random.h"

namespace tutti {
namespace {

uint32_t begin(FlowSolver& solver, std::vector<uint32_t> links, uint32_t urgency_class = 1) {
  return solver.begin(links, urgency_class);
}

TEST_CASE("n flows over one link have an nth of it each") {
  FlowSolver solver;
  const uint32_t link = solver.add_link(100);
  std::vector<uint32_t> flows;
  for (uint32_t n = 1; n <= 8; ++n) {
    flows.push_back(begin(solver, {link}));
    solver.solve();
    for (const uint32_t flow : flows) CHECK(solver.rate(flow) == doctest::Approx(100.0 / n));
    CHECK(solver.used(link) == doctest::Approx(100));
  }
  solver.end(flows.back());
  solver.solve();
  CHECK(solver.rate(flows[0]) == doctest::Approx(100.0 / 7));
}

// The parking lot: one flow over all links, and one more over each. Links of different speeds.
TEST_CASE("a long flow has what its narrowest link gives, and short ones the rest of theirs") {
  FlowSolver solver;
  const uint32_t links[] = {solver.add_link(10), solver.add_link(4), solver.add_link(6)};
  const uint32_t far = begin(solver, {links[0], links[1], links[2]});
  std::vector<uint32_t> near;
  for (const uint32_t link : links) near.push_back(begin(solver, {link}));
  solver.solve();
  CHECK(solver.rate(far) == doctest::Approx(2));
  CHECK(solver.rate(near[0]) == doctest::Approx(8));
  CHECK(solver.rate(near[1]) == doctest::Approx(2));
  CHECK(solver.rate(near[2]) == doctest::Approx(4));
}

TEST_CASE("the bottleneck moves when flows begin and end") {
  FlowSolver solver;
  const uint32_t a = solver.add_link(10);
  const uint32_t b = solver.add_link(12);
  const uint32_t first = begin(solver, {a});
  const uint32_t both = begin(solver, {a, b});
  solver.solve();
  CHECK(solver.rate(both) == doctest::Approx(5));  // by a
  std::vector<uint32_t> more;
  for (int i = 0; i < 3; ++i) more.push_back(begin(solver, {b}));
  solver.solve();
  CHECK(solver.rate(both) == doctest::Approx(3));  // by b
  CHECK(solver.rate(first) == doctest::Approx(7));
  for (const uint32_t flow : more) solver.end(flow);
  solver.end(first);
  solver.solve();
  CHECK(solver.rate(both) == doctest::Approx(10));  // alone, by a again
}

TEST_CASE("what is urgent has all it can use, and the rest is shared below it") {
  FlowSolver solver;
  const uint32_t wide = solver.add_link(10);
  const uint32_t narrow = solver.add_link(4);
  const uint32_t bulk = begin(solver, {wide}, 2);
  const uint32_t usual = begin(solver, {wide}, 1);
  solver.solve();
  CHECK(solver.rate(usual) == doctest::Approx(10));
  CHECK(solver.rate(bulk) == doctest::Approx(0));
  const uint32_t urgent = begin(solver, {wide, narrow}, 0);
  solver.solve();
  CHECK(solver.rate(urgent) == doctest::Approx(4));
  CHECK(solver.rate(usual) == doctest::Approx(6));
  solver.end(usual);
  solver.solve();
  CHECK(solver.rate(bulk) == doctest::Approx(6));
}

TEST_CASE("what shares no link with a change is left alone, and who crosses none is not held up") {
  FlowSolver solver;
  const uint32_t a = solver.add_link(10);
  const uint32_t b = solver.add_link(20);
  const uint32_t here = begin(solver, {a});
  const uint32_t there = begin(solver, {b});
  const uint32_t nowhere = begin(solver, {});
  CHECK_FALSE(solver.settled());
  CHECK(std::ranges::equal(solver.solve(), std::vector{here, there, nowhere}));
  CHECK(solver.settled());
  CHECK(solver.rate(nowhere) == FlowSolver::kUnlimited);
  const uint32_t other = begin(solver, {b});
  CHECK(std::ranges::equal(solver.solve(), std::vector{there, other}));
  solver.end(nowhere);
  CHECK(solver.solve().empty());
}

// What makes an allocation max-min fair: of its class, every flow crosses a full link on which no
// flow is faster. Links count what more urgent classes took as theirs.
void check_fair(const FlowSolver& solver, const std::vector<double>& capacity,
                const std::vector<std::pair<uint32_t, std::vector<uint32_t>>>& flows) {
  for (uint32_t link = 0; link < capacity.size(); ++link)
    CHECK(solver.used(link) <= capacity[link] * (1 + 1e-9));
  for (const auto& [flow, links] : flows) {
    const bool held = std::ranges::any_of(links, [&](uint32_t link) {
      const double slack = capacity[link] - solver.used(link);
      const bool fastest = std::ranges::none_of(flows, [&](const auto& other) {
        return std::ranges::count(other.second, link) != 0 &&
               solver.rate(other.first) > solver.rate(flow) * (1 + 1e-9);
      });
      return slack < 1e-6 * capacity[link] && fastest;
    });
    CHECK(held);
  }
}

TEST_CASE("random flows are shared max-min fairly, however they came and went") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimRandom random(seed);
    FlowSolver solver;
    std::vector<double> capacity;
    for (int i = 0; i < 12; ++i) {
      capacity.push_back(static_cast<double>(1 + random.below(20)));
      solver.add_link(capacity.back());
    }
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> flows;
    for (int step = 0; step < 120; ++step) {
      if (!flows.empty() && random.below(3) == 0) {
        const uint64_t which = random.below(flows.size());
        solver.end(flows[which].first);
        flows.erase(flows.begin() + static_cast<ptrdiff_t>(which));
      } else {
        std::vector<uint32_t> links;
        for (uint32_t link = 0; link < capacity.size() && links.size() < 4; ++link)
          if (random.below(5) == 0) links.push_back(link);
        if (links.empty()) links.push_back(0);
        flows.emplace_back(solver.begin(links, 1), links);
      }
      if (random.below(4) != 0) continue;  // several changes at once
      solver.solve();
      check_fair(solver, capacity, flows);
    }
  }
}

}  // namespace
}  // namespace tutti
