#include "world/network.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("addresses parse and print back") {
  for (const char* text : {"127.0.0.1:80", "[::1]:7000", "node17:0", "unix:/run/x.sock"})
    CHECK(Address::parse(text).value().text() == text);
}

TEST_CASE("a bad address is refused with what is wrong") {
  CHECK(Address::parse("nonsense").error().text().find("host:port") != std::string::npos);
  CHECK(Address::parse("::1:80").error().text().find("[::1]:port") != std::string::npos);
  CHECK(Address::parse("h:70000").error().text().find("70000") != std::string::npos);
  CHECK(!Address::parse("unix:"));
  CHECK(!Address::parse(":80"));
}

}  // namespace
}  // namespace tutti
