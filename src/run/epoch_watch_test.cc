#include "run/epoch_watch.h"

#include <doctest/doctest.h>

#include "run/epoch_fixture_test.h"

using namespace tutti;

TEST_CASE("outside of a job no epoch is ever over") {
  EpochWatch watch;
  CHECK(watch.enter(Duration(0)).has_value());
  CHECK_FALSE(watch.over());
}

TEST_CASE("an epoch that is over says which, and who was lost") {
  TestPage page;
  EpochWatch watch = page.watch();
  CHECK_FALSE(watch.over());
  page.page.dead[0] = 3 | uint64_t{5} << 32;
  page.page.dead[1] = 8 | uint64_t{8} << 32;
  page.page.dead_count = 2;
  page.abort();
  CHECK(watch.over());
  CHECK(watch.aborted().code() == Code::unavailable);
  CHECK(watch.aborted().text() ==
        "aborted(epoch 1): it is over, since the job lost process 3-5, 8; try again, which is in "
        "the next");
}

TEST_CASE("who enters waits for the next epoch, but not for ever") {
  TestPage page;
  EpochWatch watch = page.watch();
  page.abort();
  const auto waited = watch.enter(1ms);
  REQUIRE_FALSE(waited.has_value());
  CHECK(waited.error().code() == Code::deadline);
  std::thread agent([&] { page.begin(2); });
  CHECK(watch.enter(10min).has_value());
  agent.join();
  CHECK(watch.epoch() == 2);
  CHECK_FALSE(watch.over());
}
