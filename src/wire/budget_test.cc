#include "wire/budget.h"

#include <doctest/doctest.h>

namespace tutti::wire {
namespace {

struct TestWait final : Budget::Wait {
  explicit TestWait(uint64_t wanted) { bytes = wanted; }
  void granted(Lease granted) override { lease = std::move(granted); }
  bool has() const { return lease.bytes() == bytes; }
  void let_go() { lease = Lease(); }
  Lease lease;
};

TEST_CASE("a budget is granted in the order of asking, nobody overtakes") {
  const auto budget = std::make_shared<Budget>(100);
  TestWait first(60);
  TestWait second(50);
  TestWait third(10);
  for (TestWait* wait : {&first, &second, &third}) budget->ask(*wait);
  CHECK(first.has());
  CHECK(!second.has());
  CHECK(!third.has());
  first.let_go();
  CHECK(second.has());
  CHECK(third.has());
  CHECK(budget->in_use() == 60);
}

TEST_CASE("what is more than the whole budget is granted alone") {
  const auto budget = std::make_shared<Budget>(100);
  TestWait large(500);
  TestWait small(1);
  budget->ask(large);
  budget->ask(small);
  CHECK(large.has());
  CHECK(!small.has());
  large.let_go();
  CHECK(small.has());
  budget->ask(large);
  CHECK(!large.has());
  small.let_go();
  CHECK(large.has());
}

TEST_CASE("who leaves the queue lets those behind pass") {
  const auto budget = std::make_shared<Budget>(100);
  TestWait held(60);
  TestWait large(50);
  TestWait small(10);
  for (TestWait* wait : {&held, &large, &small}) budget->ask(*wait);
  budget->withdraw(large);
  CHECK(small.has());
}

TEST_CASE("what is there already is counted even beyond the limit") {
  const auto budget = std::make_shared<Budget>(100);
  Lease lease = budget->take(150);
  CHECK(budget->over_limit());
  TestWait nothing(0);
  budget->ask(nothing);
  CHECK(nothing.linked());
  lease = Lease();
  CHECK(!nothing.linked());
}

TEST_CASE("a lease may outlive whoever made the budget") {
  auto budget = std::make_shared<Budget>(100);
  const Lease lease = budget->take(10);
  budget.reset();
  CHECK(lease.bytes() == 10);
}

}  // namespace
}  // namespace tutti::wire
