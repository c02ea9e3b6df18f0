#include "train/schedule.h"

#include <doctest/doctest.h>

using namespace tutti;

TEST_CASE("a rate warms up evenly, then falls as its curve does") {
  Schedule schedule{.rate = 1, .least = 0.1, .warm_up = 3, .end = 103, .decline = Decline::cosine};
  CHECK(rate_at(schedule, 0) == 0.25);
  CHECK(rate_at(schedule, 2) == 0.75);
  CHECK(rate_at(schedule, 3) == 1);
  CHECK(rate_at(schedule, 53) == doctest::Approx(0.55));
  CHECK(rate_at(schedule, 28) == doctest::Approx(0.1 + 0.9 * 0.8535533906));
  CHECK(rate_at(schedule, 103) == 0.1);
  CHECK(rate_at(schedule, 1'000'000) == 0.1);
  schedule.decline = Decline::linear;
  CHECK(rate_at(schedule, 28) == doctest::Approx(0.775));
  schedule.decline = Decline::constant;
  CHECK(rate_at(schedule, 1000) == 1);
}

TEST_CASE("schedules that make no sense are refused") {
  CHECK(check_schedule({.rate = 1, .least = 2}).error().code() == Code::invalid);
  CHECK(check_schedule({.rate = -1, .least = -2}).error().code() == Code::invalid);
  const Schedule early{.rate = 1, .warm_up = 10, .end = 5, .decline = Decline::linear};
  CHECK(check_schedule(early).error().text().find("within the warm-up") != std::string::npos);
  CHECK(check_schedule({.rate = 1, .warm_up = 10}).has_value());
  CHECK(decline_named("cosin").error().text().find("cosine?") != std::string::npos);
  CHECK(decline_named("linear") == Decline::linear);
}
