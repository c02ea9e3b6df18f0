#include "cluster/progress_watch.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

// Looks as often as a host does, at a counter that grows every `step` until `stop`; gives when it
// was found to hang, and for how long it had been allowed to be silent.
std::optional<std::pair<Duration, Duration>> hang_of(Duration hang_after, Duration step,
                                                     Duration stop) {
  ProgressWatch watch;
  watch.begin(Instant());
  for (Duration at = 0s; at < stop + 1h; at += look_pause(hang_after)) {
    const auto progress = static_cast<uint64_t>(std::min(at, stop) / step);
    if (const auto allowed = watch.look(progress, Instant() + at, hang_after))
      return std::pair(at, *allowed);
  }
  return std::nullopt;
}

TEST_CASE("whoever is silent for hang_after hangs, however short that is") {
  for (const Duration hang_after : {Duration(400ms), Duration(1s), Duration(3s), Duration(30s)}) {
    const auto found = hang_of(hang_after, hang_after / 3, 10 * hang_after);
    REQUIRE(found);
    CHECK(found->second == hang_after);
    CHECK(found->first <= 11 * hang_after + 2 * look_pause(hang_after));
  }
}

TEST_CASE("slow steps, shorter than hang_after, do not make it longer") {
  const auto found = hang_of(10s, 9s, 45s);
  REQUIRE(found);
  CHECK(found->second == 10s);
}

TEST_CASE("who was silent for longer, and went on, is given four times as long") {
  ProgressWatch watch;
  watch.begin(Instant());
  CHECK_FALSE(watch.look(1, Instant() + 900ms, 1s));
  CHECK_FALSE(watch.look(2, Instant() + 2s, 1s));  // between two looks, 1.1 s after
  CHECK(watch.allowed(1s) == 4400ms);
  CHECK_FALSE(watch.look(2, Instant() + 6399ms, 1s));
  CHECK(watch.look(2, Instant() + 6400ms, 1s) == 4400ms);
  watch.begin(Instant() + 10s);
  CHECK(watch.allowed(1s) == 1s);
}

TEST_CASE("the first progress may take up to hang_after, and says nothing of the next") {
  ProgressWatch watch;
  watch.begin(Instant());
  CHECK_FALSE(watch.look(0, Instant() + 999ms, 1s));
  CHECK(watch.look(0, Instant() + 1s, 1s) == 1s);
  CHECK_FALSE(watch.look(5, Instant() + 3s, 1s));
  CHECK(watch.allowed(1s) == 1s);
}

TEST_CASE("looks are neither rare nor many") {
  CHECK(look_pause(1ms) == 50ms);
  CHECK(look_pause(1s) == 125ms);
  CHECK(look_pause(1h) == 1s);
}

}  // namespace
}  // namespace tutti
