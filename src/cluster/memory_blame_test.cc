#include "cluster/memory_blame.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("each process the kernel killed for memory explains one failure") {
  MemoryBlame blame;
  blame.look(5, Instant(0s));  // of before, and of others
  CHECK_FALSE(blame.explains(5));
  CHECK(blame.explains(7));
  CHECK(blame.explains(7));
  CHECK_FALSE(blame.explains(7));
}

TEST_CASE("a failure long after has another reason") {
  MemoryBlame blame;
  blame.look(0, Instant(0s));
  blame.look(1, Instant(10s));
  CHECK(MemoryBlame(blame).explains(1));  // a child was killed just now
  blame.look(1, Instant(15s));
  CHECK(MemoryBlame(blame).explains(1));
  blame.look(1, Instant(20s));
  CHECK_FALSE(blame.explains(1));
  CHECK(blame.explains(2));
}

TEST_CASE("without a count nothing is blamed on memory") {
  MemoryBlame blame;
  CHECK_FALSE(blame.explains(3));
}

}  // namespace
}  // namespace tutti
