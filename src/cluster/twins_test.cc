#include "cluster/twins.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

cluster::Hanging hanging(uint64_t instance, NodeId above) {
  cluster::Hanging hanging;
  hanging.set_node(7);
  hanging.set_instance(instance);
  hanging.set_above(above);
  hanging.set_name("seven");
  return hanging;
}

TEST_CASE("an agent that moves or was started anew has no twin") {
  Twins twins;
  CHECK_FALSE(twins.came(hanging(1, 2)));
  CHECK_FALSE(twins.came(hanging(1, 3)));
  const auto before = twins.came(hanging(2, 3));
  REQUIRE(before);
  CHECK(before->instance() == 1);
  CHECK(before->above() == 3);
  // Nobody says that it is still there.
  CHECK_FALSE(twins.came(hanging(2, 4)));
  CHECK(twins.recent(0).empty());
}

TEST_CASE("of two agents with one name the newer has to go, however often it comes") {
  Twins twins;
  twins.came(hanging(1, 2));
  for (const uint64_t newer : {8, 9}) {
    const auto before = twins.came(hanging(newer, 3));
    REQUIRE(before);
    CHECK(before->instance() == 1);
    const auto gone = twins.is_there(*before);
    REQUIRE(gone);
    CHECK(gone->instance() == newer);
    CHECK(gone->above() == 3);
    CHECK_FALSE(twins.is_there(*before));
    CHECK(twins.is_another(7, newer));
    CHECK_FALSE(twins.is_another(7, 1));
  }
}

TEST_CASE("names that were refused are told for some minutes") {
  Twins twins;
  twins.note("seven", 1'000'000'000);
  twins.note("seven", 2'000'000'000);
  const auto recent = twins.recent(3'000'000'000);
  REQUIRE(recent.size() == 1);
  CHECK(recent[0].name() == "seven");
  CHECK(recent[0].times() == 2);
  CHECK(twins.recent(int64_t{3600} * 1'000'000'000).empty());
}

}  // namespace
}  // namespace tutti
