#include "cluster/job_queue.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("jobs leave in the order in which they came, or in that of those who may pass") {
  JobQueue queue;
  CHECK_FALSE(queue.first_but({}));
  queue.push(1, "ann");
  queue.push(2, "bob");
  queue.push(3, "ann");
  queue.push(4, "cid");
  CHECK(queue.size() == 4);
  CHECK(queue.size_of("ann") == 2);
  CHECK(queue.all() == std::vector<uint64_t>{1, 2, 3, 4});
  CHECK(queue.first_but({})->job == 1);
  CHECK(queue.first_but({"ann"})->job == 2);
  CHECK(queue.first_but({"ann", "bob"})->account == "cid");
  CHECK_FALSE(queue.first_but({"ann", "bob", "cid"}));
  queue.pop("bob");
  CHECK(queue.first_but({"ann"})->job == 4);
  queue.pop("ann");
  CHECK(queue.first_but({})->job == 3);
  CHECK(queue.size() == 2);
  CHECK(queue.size_of("bob") == 0);
}

TEST_CASE("who steps aside lets others pass, and comes back to its place") {
  JobQueue queue;
  queue.push(1, "ann");
  queue.push(2, "ann");
  queue.push(3, "bob");
  queue.step_aside("ann");
  CHECK(queue.first_but({})->job == 2);
  queue.step_aside("bob");
  queue.push(4, "bob");
  CHECK(queue.size() == 4);
  CHECK(queue.all() == std::vector<uint64_t>{1, 2, 3, 4});
  queue.pop("ann");
  CHECK(queue.first_but({})->job == 4);
  queue.call_back();
  CHECK(queue.size() == 3);
  CHECK(queue.first_but({})->job == 1);
  CHECK(queue.first_but({"ann"})->job == 3);
}

}  // namespace
}  // namespace tutti
