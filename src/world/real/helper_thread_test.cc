#include "world/real/helper_thread.h"

#include <doctest/doctest.h>

#include <semaphore>

using namespace tutti;

TEST_CASE("a helper works while we do not wait for it") {
  Diligence diligence = Diligence::ordinary;
  SUBCASE("as others do") {}
  SUBCASE("when a core has nothing else to do") { diligence = Diligence::when_idle; }
  HelperThread helper(diligence);
  std::binary_semaphore go{0};
  int done = 0;
  helper.wait();  // for nothing
  for (int round = 1; round <= 3; ++round) {
    helper.start([&] {
      go.acquire();
      ++done;
    });
    go.release();
    helper.wait();
    CHECK(done == round);
  }
}

TEST_CASE("who waits for a while is told whether the helper is done") {
  HelperThread helper;
  CHECK(helper.wait_for(Duration(0)));  // nothing
  std::binary_semaphore go{0};
  helper.start([&] { go.acquire(); });
  CHECK_FALSE(helper.wait_for(1ms));
  go.release();
  while (!helper.wait_for(1ms)) {
  }
}

TEST_CASE("a helper that goes has done what it was given") {
  int done = 0;
  {
    HelperThread helper;
    helper.start([&] { ++done; });
  }
  CHECK(done == 1);
}
