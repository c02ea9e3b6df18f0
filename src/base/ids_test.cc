#include "base/ids.h"

#include <doctest/doctest.h>

#include <type_traits>

namespace tutti {
namespace {

struct JobTag {
  static constexpr std::string_view kName = "job";
};
struct HostTag {
  static constexpr std::string_view kName = "host";
};
using JobId = Id<JobTag>;
using HostId = Id<HostTag>;

static_assert(!std::is_convertible_v<JobId, HostId>);
static_assert(!std::is_convertible_v<uint64_t, JobId>);

TEST_CASE("an id reads back from its text") {
  for (const uint64_t value : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) {
    CHECK(*JobId::parse(JobId(value).text()) == JobId(value));
  }
  CHECK(JobId(7).text() == "job-7");
  CHECK(fmt::format("{:>6}", JobId(7)) == " job-7");
}

TEST_CASE("an id of another kind, or none, is refused with an example") {
  for (const auto* text : {"", "7", "job", "job-", "job-x", "job-7x", "job--7", "host-7", "job7",
                           "job-18446744073709551616"}) {
    CAPTURE(text);
    const auto parsed = JobId::parse(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().text() == fmt::format("'{}' is not a job id; write it like job-7", text));
  }
}

TEST_CASE("ids order by their numbers") {
  CHECK(JobId(2) < JobId(10));
  CHECK(HostId() == HostId(0));
}

TEST_CASE("a random UUID says it is version 4 and keeps the other bits") {
  const Uuid ones = Uuid::from_random_words(UINT64_MAX, UINT64_MAX);
  CHECK(ones.text() == "ffffffff-ffff-4fff-bfff-ffffffffffff");
  const Uuid zeros = Uuid::from_random_words(0, 0);
  CHECK(zeros.text() == "00000000-0000-4000-8000-000000000000");
  CHECK(Uuid::from_random_words(1, 2) != Uuid::from_random_words(2, 1));
}

TEST_CASE("a UUID reads back from its text and from its words") {
  const Uuid id = Uuid::from_random_words(0x0123456789abcdef, 0xfedcba9876543210);
  CHECK(*Uuid::parse(id.text()) == id);
  CHECK(Uuid::from_stored_words(id.high(), id.low()) == id);
  CHECK(*Uuid::parse("9B2E4C1A-7d35-4f60-8a91-0c5f6e7d8b9a") ==
        *Uuid::parse("9b2e4c1a-7d35-4f60-8a91-0c5f6e7d8b9a"));
  CHECK(Uuid().is_nil());
  CHECK(!id.is_nil());
}

TEST_CASE("what is not a UUID is refused") {
  for (const auto* text :
       {"", "9b2e4c1a7d354f608a910c5f6e7d8b9a", "9b2e4c1a-7d35-4f60-8a91-0c5f6e7d8b9",
        "9b2e4c1a-7d35-4f60-8a91-0c5f6e7d8b9g", "9b2e4c1a+7d35-4f60-8a91-0c5f6e7d8b9a"}) {
    CAPTURE(text);
    REQUIRE(!Uuid::parse(text));
    CHECK(Uuid::parse(text).error().code() == Code::invalid);
  }
}

}  // namespace
}  // namespace tutti
