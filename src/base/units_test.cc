#include "base/units.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("durations are read as people write them") {
  CHECK(*parse_duration("250ms") == 250ms);
  CHECK(*parse_duration("1.5s") == 1500ms);
  CHECK(*parse_duration("2m30s") == 150s);
  CHECK(*parse_duration("1h") == 1h);
  CHECK(*parse_duration("1h 30m") == 90min);
  CHECK(*parse_duration("10") == 10s);
  CHECK(*parse_duration("0.25") == 250ms);
  CHECK(*parse_duration("0") == 0s);
  CHECK(*parse_duration("3 us ") == 3us);
  CHECK(*parse_duration("3µs") == 3us);
  CHECK(*parse_duration("1ns") == 1ns);
  CHECK(*parse_duration("2d") == 48h);
}

TEST_CASE("what is not a duration is refused with the words of its own text") {
  for (const auto* text : {"", " ", "s", "-1s", "1x", "1s2m", "1s1s", "5m10", "1..5s", "nan", "inf",
                           "1e3s", "0x10", "1.5.5"}) {
    CAPTURE(text);
    const auto parsed = parse_duration(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().code() == Code::invalid);
    CHECK(parsed.error().message().starts_with(fmt::format("'{}' is not a duration", text)));
  }
}

TEST_CASE("a duration too long for its type is refused") {
  REQUIRE(!parse_duration("300000d"));
  CHECK(parse_duration("300000d").error().message() == "'300000d' is longer than 292 years");
  CHECK(parse_duration("106751d"));
}

TEST_CASE("durations print with three digits and the unit that fits") {
  CHECK(format_duration(0s) == "0 s");
  CHECK(format_duration(999ns) == "999 ns");
  CHECK(format_duration(38'200ns) == "38.2 µs");
  CHECK(format_duration(1500ms) == "1.50 s");
  CHECK(format_duration(250ms) == "250 ms");
  CHECK(format_duration(999'700us) == "1.00 s");
  CHECK(format_duration(59'990ms) == "1 min 0 s");
  CHECK(format_duration(150s) == "2 min 30 s");
  CHECK(format_duration(3599'700ms) == "1 h 0 min");
  CHECK(format_duration(25h) == "1 d 1 h");
  CHECK(format_duration(-1500ms) == "-1.50 s");
  CHECK(format_duration(Duration::min()).starts_with("-106752 d"));
}

TEST_CASE("sizes are read with binary and decimal units") {
  CHECK(*parse_bytes("4096") == 4096);
  CHECK(*parse_bytes("64KiB") == 64_KiB);
  CHECK(*parse_bytes("1.5GiB") == 1536_MiB);
  CHECK(*parse_bytes("10MB") == 10'000'000);
  CHECK(*parse_bytes("1 TiB") == 1024_GiB);
  CHECK(*parse_bytes("0B") == 0);
  CHECK(*parse_bytes("18446744073709551615") == UINT64_MAX);
  CHECK(*parse_bytes("9007199254740993") == 9007199254740993);
}

TEST_CASE("what is not a size is refused") {
  for (const auto* text :
       {"", "KiB", "-1", "1Kb", "1.5", "1KiB2", "0.3B", "18446744073709551616", "17000000TiB"}) {
    CAPTURE(text);
    const auto parsed = parse_bytes(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().code() == Code::invalid);
    CHECK(parsed.error().message().starts_with(fmt::format("'{}' ", text)));
  }
}

TEST_CASE("sizes print in binary units") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1536_MiB) == "1.5 GiB");
  CHECK(format_bytes(1024_KiB - 1) == "1.0 MiB");
  CHECK(format_bytes(UINT64_MAX) == "16.0 EiB");
}

}  // namespace
}  // namespace tutti
