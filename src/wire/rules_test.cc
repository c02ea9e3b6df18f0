#include "wire/rules.h"

#include <doctest/doctest.h>

namespace tutti::wire {
namespace {

TEST_CASE("an identity survives the way into a URI and back") {
  const Identity identity{"lab", Role::worker, "job7:3"};
  CHECK(identity_uri(identity) == "tutti://lab/worker/job7:3");
  CHECK(parse_identity_uri("tutti://lab/worker/job7:3").value() == identity);
}

TEST_CASE("an identity that is not one is refused") {
  for (const char* uri : {"", "tutti://", "tutti://lab", "tutti://lab/agent", "tutti://lab/agent/",
                          "tutti:///agent/x", "http://lab/agent/x", "tutti://lab/boss/x",
                          "tutti://lab/agent/a/b", "tutti://lab/agent/a b", "tutti://l\nb/agent/a"})
    CHECK(!parse_identity_uri(uri));
  CHECK(!parse_identity_uri("tutti://lab/agent/" + std::string(kMaxNameBytes + 1, 'x')));
  CHECK(!parse_identity_uri(std::string_view("tutti://lab/agent/x\0y", 21)));
}

TEST_CASE("a role that is nearly right is suggested") {
  CHECK(
      parse_role("agnet").error().message() ==
      "'agnet' is not a role (did you mean agent?); roles are user, agent, head, keeper or worker");
}

TEST_CASE("the time is told as a calendar tells it") {
  CHECK(utc_text(0) == "1970-01-01 00:00:00 UTC");
  CHECK(utc_text(1'800'000'000) == "2027-01-15 08:00:00 UTC");
  CHECK(utc_text(1'709'164'799) == "2024-02-28 23:59:59 UTC");
}

TEST_CASE("nobody passes without a fingerprint, not even one who lacks it as we do") {
  const Claim nobody{{"lab", Role::agent, "node3"}, "", 0, 100};
  const auto refused = judge(nobody, nobody, {}, Side::accepting, 50);
  REQUIRE(refused.has_value());
  CHECK(refused->why == Refusal::unknown_authority);
}

}  // namespace
}  // namespace tutti::wire
