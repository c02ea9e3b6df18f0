#include "world/real/pages.h"

#include <doctest/doctest.h>

#include "base/units.h"

using namespace tutti;

TEST_CASE("pages are zero, aligned, and belong to one owner") {
  auto made = Pages::make(5_MiB + 3);
  REQUIRE(made.has_value());
  Pages pages = *std::move(made);
  REQUIRE(pages.bytes().size() == 5_MiB + 3);
  CHECK(reinterpret_cast<uintptr_t>(pages.bytes().data()) % 2_MiB == 0);
  CHECK(pages.bytes().back() == std::byte{0});
  pages.bytes().back() = std::byte{1};
  pages = Pages();
  CHECK(pages.bytes().empty());
  CHECK(Pages::make(~uint64_t{0}).error().code() == Code::exhausted);
}

TEST_CASE("a process knows what memory there is and what it uses") {
  const auto available = available_memory_bytes();
  REQUIRE(available.has_value());
  CHECK(*available > 1_MiB);
  const auto before = own_memory_bytes();
  REQUIRE(before.has_value());
  auto pages = Pages::make(64_MiB);
  REQUIRE(pages.has_value());
  for (std::byte& byte : pages->bytes()) byte = std::byte{7};
  CHECK(*own_memory_bytes() > *before + 32_MiB);
}
