#include "base/range_set.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace tutti {
namespace {

TEST_CASE("neighbours become one range, in whatever order they come") {
  RangeSet set;
  for (const uint32_t member : {5, 1, 3, 2, 9, 4}) set.add(member);
  CHECK(set.text() == "1-5,9");
  CHECK(set.size() == 6);
  set.add(0, 20);
  CHECK(set.text() == "0-20");
}

TEST_CASE("sets do what sets of single numbers do") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::set<uint32_t> a;
    std::set<uint32_t> b;
    RangeSet ra;
    RangeSet rb;
    for (int i = 0; i < 12; ++i) {
      const uint32_t x = random() % 40;
      const uint32_t y = random() % 40;
      a.insert(x);
      ra.add(x);
      b.insert(y);
      rb.add(y, y + y % 3);
      for (uint32_t z = y; z <= y + y % 3; ++z) b.insert(z);
    }
    std::vector<uint32_t> sum;
    std::vector<uint32_t> rest;
    std::vector<uint32_t> both;
    std::ranges::set_union(a, b, std::back_inserter(sum));
    std::ranges::set_difference(a, b, std::back_inserter(rest));
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    CHECK(ra.plus(rb).members() == sum);
    CHECK(ra.minus(rb).members() == rest);
    CHECK(ra.common(rb).members() == both);
    CHECK(ra.meets(rb) == !both.empty());
    CHECK(RangeSet::from_pairs(rb.pairs()).value() == rb);
    CHECK(RangeSet::parse(rb.text()).value() == rb);
    for (uint32_t member = 0; member < 45; ++member)
      CHECK(ra.contains(member) == a.contains(member));
    for (uint64_t place = 0; place < ra.size(); ++place) CHECK(ra.place_of(ra.at(place)) == place);
  }
}

TEST_CASE("the largest numbers are members like others") {
  RangeSet set(0xFFFFFFFE, 0xFFFFFFFF);
  CHECK(set.contains(0xFFFFFFFF));
  CHECK(set.minus(RangeSet(0xFFFFFFFF)).text() == "4294967294");
  set.add(3);
  CHECK(set.text() == "3,4294967294-4294967295");
}

TEST_CASE("what is no set is refused") {
  CHECK(RangeSet::parse("").value().empty());
  for (const char* text : {"x", "1-", "-1", "5-3", "1,,2", "1 2", "99999999999"})
    CHECK_FALSE(RangeSet::parse(text).has_value());
  for (const std::vector<uint32_t>& pairs :
       {std::vector<uint32_t>{1}, {3, 2}, {1, 2, 3, 4}, {5, 6, 1, 2}, {1, 5, 3, 9}})
    CHECK(RangeSet::from_pairs(pairs).error().code() == Code::corrupt);
}

}  // namespace
}  // namespace tutti
