#include "world/real/spinner.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

constexpr Duration kLongest = 50us;

bool spins(const Spinner& spinner) { return spinner.budget() > Duration::zero(); }

// Short waits until the spinner spins.
int waits_to_earn(Spinner& spinner) {
  int waits = 0;
  while (!spins(spinner) && waits < 10'000) {
    spinner.slept(80us);
    ++waits;
  }
  return waits;
}

TEST_CASE("a process that waits long never spins") {
  Spinner spinner(kLongest);
  for (int i = 0; i < 1000; ++i) {
    CHECK(!spins(spinner));
    spinner.slept(5ms);
  }
}

TEST_CASE("short waits begin a spin, and answered spins keep it") {
  Spinner spinner(kLongest);
  CHECK(waits_to_earn(spinner) == 2);
  for (int i = 0; i < 1000; ++i) {
    CHECK(spins(spinner));
    spinner.spun(10us, i % 8 == 0);
  }
}

TEST_CASE("spins that are never answered end, and are tried ever more rarely") {
  Spinner spinner(kLongest);
  int spun = 0;
  int waits = 0;
  while (waits < 10'000) {
    waits += waits_to_earn(spinner);
    for (; spins(spinner); ++spun) spinner.spun(kLongest, false);
  }
  CHECK(spun < 80);
}

TEST_CASE("losing the processor while spinning ends it, even when the answer had come") {
  Spinner spinner(kLongest);
  waits_to_earn(spinner);
  spinner.spun(3ms, true);
  CHECK(!spins(spinner));
  CHECK(waits_to_earn(spinner) == 128);
}

TEST_CASE("a spinner of zero never spins") {
  Spinner spinner(Duration::zero());
  CHECK(waits_to_earn(spinner) == 10'000);
}

}  // namespace
}  // namespace tutti
