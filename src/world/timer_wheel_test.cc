#include "world/timer_wheel.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

namespace tutti {
namespace {

struct Alarm final : Timer {
  int id = 0;

 private:
  void fire() override {}
};

TEST_CASE("timers come in order of time, and of insertion at the same time") {
  TimerWheel wheel;
  std::deque<Alarm> alarms(4);
  wheel.insert(alarms[0], 5'000'000'000);
  wheel.insert(alarms[1], 7);
  wheel.insert(alarms[2], 5'000'000'000);
  wheel.insert(alarms[3], 100'000);
  CHECK(wheel.take(6) == nullptr);
  CHECK(wheel.take(1'000'000'000) == &alarms[1]);
  CHECK(wheel.take(1'000'000'000) == &alarms[3]);
  CHECK(wheel.take(1'000'000'000) == nullptr);
  CHECK(wheel.earliest_ns() <= 5'000'000'000);
  CHECK(wheel.take(TimerWheel::kNothing) == &alarms[0]);
  CHECK(wheel.take(TimerWheel::kNothing) == &alarms[2]);
  CHECK(wheel.earliest_ns() == TimerWheel::kNothing);
}

TEST_CASE("centuries ahead is a time like any other") {
  TimerWheel wheel;
  std::deque<Alarm> alarms(3);
  wheel.insert(alarms[0], TimerWheel::kNothing - 1);
  wheel.insert(alarms[1], 1'800'000'000'000'000'000);
  CHECK(wheel.take(TimerWheel::kNothing) == &alarms[1]);
  wheel.insert(alarms[2], 1'800'000'000'000'000'001);
  CHECK(wheel.take(TimerWheel::kNothing) == &alarms[2]);
  CHECK(wheel.take(TimerWheel::kNothing) == &alarms[0]);
}

// Delays of all sizes, so that every level, carries between blocks and the heap are met.
int64_t random_delay(std::mt19937_64& random) {
  const int bits = static_cast<int>(random() % 44);
  return static_cast<int64_t>(random() & ((1ULL << bits) - 1));
}

TEST_CASE("any mix of inserts, removals and takes agrees with an ordered map") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    std::deque<Alarm> alarms(300);
    for (int i = 0; i < 300; ++i) alarms[static_cast<size_t>(i)].id = i;
    TimerWheel wheel;
    std::map<std::pair<int64_t, uint64_t>, Alarm*> model;
    std::map<Alarm*, std::pair<int64_t, uint64_t>> keys;
    int64_t now = 0;
    uint64_t sequence = 0;
    for (int step = 0; step < 4000; ++step) {
      Alarm& alarm = alarms[random() % alarms.size()];
      const uint64_t choice = random() % 8;
      if (choice < 4 && !alarm.armed()) {
        const int64_t at = now + random_delay(random);
        wheel.insert(alarm, at);
        keys[&alarm] = {at, sequence++};
        model[keys[&alarm]] = &alarm;
      } else if (choice == 4 && alarm.armed()) {
        wheel.remove(alarm);
        model.erase(keys[&alarm]);
      } else if (choice > 5) {
        const int64_t until = random() % 4 == 0 ? now + random_delay(random) : TimerWheel::kNothing;
        Timer* taken = wheel.take(until);
        const bool due = !model.empty() && model.begin()->first.first <= until;
        REQUIRE(taken == (due ? model.begin()->second : nullptr));
        if (due) {
          now = model.begin()->first.first;
          REQUIRE(wheel.taken_at_ns() == now);
          model.erase(model.begin());
        } else if (until != TimerWheel::kNothing) {
          now = std::max(now, until);
        }
      }
      REQUIRE(wheel.size() == model.size());
      if (!model.empty()) REQUIRE(wheel.earliest_ns() <= model.begin()->first.first);
    }
    for (Alarm& alarm : alarms)
      if (alarm.armed()) wheel.remove(alarm);
  }
}

}  // namespace
}  // namespace tutti
