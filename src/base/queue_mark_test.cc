#include "base/queue_mark.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

namespace tutti {
namespace {

TEST_CASE("a mark tells a queue over its limit, and how full it was") {
  QueueMark mark{"letters"};
  CHECK(mark.fits(3, 10));
  CHECK(mark.fits(10, 10));
  CHECK(mark.fits(2, 10));
  CHECK(mark.highest == 10);
  CHECK_FALSE(mark.fits(11, 10));
  CHECK(mark.highest == 11);
  CHECK(mark.limit == 10);
}

TEST_CASE("marks of a program are known by their names, also before their lines ran") {
  bool ran = false;
  if (queue_marks().empty()) TUTTI_QUEUE("test: never", 1, 1);
  for (uint64_t depth = 0; depth < 5; ++depth) {
    TUTTI_QUEUE("test: parcels", depth, 5);
    ran = true;
  }
  CHECK(ran);
  const auto marks = queue_marks();
  const auto named = [](std::string_view name) {
    return [=](const QueueMark* mark) { return mark->name == name; };
  };
  const auto parcels = std::ranges::find_if(marks, named("test: parcels"));
  REQUIRE(parcels != marks.end());
  CHECK((*parcels)->highest == 4);
  CHECK((*parcels)->limit == 5);
  CHECK(std::ranges::any_of(marks, named("test: never")));
}

}  // namespace
}  // namespace tutti
