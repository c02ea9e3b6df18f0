#include "world/real/background.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>

#include "world/real/real_world.h"
#include "world/real/signals.h"

namespace tutti {
namespace {

TEST_CASE("a signal is expected by who waits for it, and by nobody else") {
  RealWorld world({.spin = 0s});
  CHECK_FALSE(expects_signal(getpid(), SIGUSR1));
  {
    constexpr int kNumbers[] = {SIGUSR1};
    auto signals = Signals::create(world.loop(), kNumbers);
    REQUIRE(signals.has_value());
    CHECK(expects_signal(getpid(), SIGUSR1));
    CHECK_FALSE(expects_signal(getpid(), SIGUSR2));
  }
}

}  // namespace
}  // namespace tutti
