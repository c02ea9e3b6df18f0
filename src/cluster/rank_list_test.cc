#include "cluster/rank_list.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("ranks in a row are folded") {
  CHECK(format_ranks({3}) == "rank 3");
  CHECK(format_ranks({0, 1}) == "ranks 0-1");
  CHECK(format_ranks({31, 0, 2, 1, 7}) == "ranks 0-2,7,31");
  const std::vector<std::string> labels = {"prep 0", "worker 0", "worker 1", "worker 2", "log 0"};
  CHECK(format_ranks({4, 0, 2, 1}, labels) == "prep 0, worker 0-1, log 0");
  CHECK(format_ranks({3, 1}, labels) == "worker 0, worker 2");
  CHECK(format_ranks({3, 1}, {}) == "ranks 1,3");
}

}  // namespace
}  // namespace tutti
