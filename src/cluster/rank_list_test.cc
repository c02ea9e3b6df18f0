#include "cluster/rank_list.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("ranks in a row are folded") {
  CHECK(format_ranks({3}) == "rank 3");
  CHECK(format_ranks({0, 1}) == "ranks 0-1");
  CHECK(format_ranks({31, 0, 2, 1, 7}) == "ranks 0-2,7,31");
}

}  // namespace
}  // namespace tutti
