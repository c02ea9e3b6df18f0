#include "base/log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "base/json.h"

namespace tutti {
namespace {

constexpr LogStamp kNoClock;

std::string people(std::string_view event, std::initializer_list<LogField> fields) {
  return format_log_line(LogStyle::people, false, kNoClock, LogLevel::info, event, fields);
}

Json json(std::initializer_list<LogField> fields) {
  auto value =
      parse_json(format_log_line(LogStyle::json, false, kNoClock, LogLevel::info, "event", fields));
  REQUIRE(value);
  return *value;
}

// Takes the lines instead of standard error, and puts everything back.
class Capture {
 public:
  Capture() {
    set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  ~Capture() {
    set_log_sink(nullptr);
    set_log_stamp(nullptr);
    set_log_level(LogLevel::info);
    set_log_style(LogStyle::people);
  }
  std::vector<std::string> lines;
};

TEST_CASE("a line for people is the event and its fields") {
  CHECK(people("worker died", {{"rank", 3}, {"why", "no space"}, {"host", "node7"}}) ==
        R"(INFO  worker died rank=3 why="no space" host=node7)");
}

TEST_CASE("values that would break a line are quoted") {
  CHECK(people("x", {{"a", ""}}) == R"(INFO  x a="")");
  CHECK(people("x", {{"a", "two\nlines"}}) == R"(INFO  x a="two\nlines")");
  CHECK(people("x", {{"a", "k=v"}}) == R"(INFO  x a="k=v")");
  CHECK(people("x", {{"a", "\x1b[31m"}}) == R"(INFO  x a="\u001b[31m")");
  CHECK(people("two\nlines", {}) == "INFO  two lines");
}

TEST_CASE("every type of value prints") {
  CHECK(people("x", {{"a", true}, {"b", -1}, {"c", UINT64_MAX}, {"d", 0.1}, {"e", 1500ms}}) ==
        "INFO  x a=true b=-1 c=18446744073709551615 d=0.1 e=1.50s");
  const Json line = json({{"a", true}, {"b", -1}, {"c", UINT64_MAX}, {"d", 0.1}, {"e", 1500ms}});
  CHECK(line["a"] == true);
  CHECK(line["b"] == -1);
  CHECK(line["c"] == UINT64_MAX);
  CHECK(line["d"] == 0.1);
  CHECK(line["e"] == 1.5);
}

TEST_CASE("a JSON line parses whatever is in it") {
  const Json line = json(
      {{"text", "quote \" and \xff byte\n"}, {"inf", std::numeric_limits<double>::infinity()}});
  CHECK(line["text"] == "quote \" and \uFFFD byte\n");
  CHECK(line["inf"] == "inf");
  CHECK(line["level"] == "info");
  CHECK(line["event"] == "event");
}

TEST_CASE("real time shows as UTC, virtual time as seconds since the beginning") {
  const LogStamp real{LogStamp::Clock::utc, 1'794'787'389'123'456'789, "node7"};
  CHECK(format_log_line(LogStyle::people, false, real, LogLevel::warn, "x", {}) ==
        "00:03:09.123 WARN  node7 x");
  CHECK(format_log_line(LogStyle::json, false, real, LogLevel::warn, "x", {}) ==
        R"({"time":"2026-11-16T00:03:09.123456Z","level":"warn","host":"node7","event":"x"})");
  const LogStamp simulated{LogStamp::Clock::virtual_, 1'500'000'001, "h0"};
  CHECK(format_log_line(LogStyle::people, false, simulated, LogLevel::error, "x", {}) ==
        "+1.500000001s ERROR h0 x");
  CHECK(format_log_line(LogStyle::json, false, simulated, LogLevel::error, "x", {}) ==
        R"({"virtual_ns":1500000001,"level":"error","host":"h0","event":"x"})");
}

TEST_CASE("colour adds only escape codes") {
  std::string line =
      format_log_line(LogStyle::people, true, kNoClock, LogLevel::error, "x", {{"rank", 3}});
  CHECK(line.find("\x1b[") != std::string::npos);
  for (size_t at; (at = line.find('\x1b')) != std::string::npos;) {
    line.erase(at, line.find('m', at) - at + 1);
  }
  CHECK(line == "ERROR x rank=3");
}

TEST_CASE("a long value is cut between characters") {
  std::string wide;
  while (wide.size() < kMaxLogLineBytes) wide += "é";
  for (const std::string& text : {wide, "a" + wide}) {
    const std::string line = people("x", {{"a", text}, {"b", 1}});
    CHECK(line.size() < kMaxLogLineBytes);
    CHECK(line.ends_with("é… b=1"));
    CHECK(json({{"a", text}})["a"].get<std::string>().ends_with("é…"));
  }
}

TEST_CASE("a line is bounded whatever is in it, and JSON stays JSON") {
  const std::string worst(kMaxLogLineBytes, '\x01');
  const std::initializer_list<LogField> fields = {{"a", worst}, {"b", worst}, {"c", worst}};
  const std::string for_people =
      format_log_line(LogStyle::people, false, kNoClock, LogLevel::info, worst, fields);
  CHECK(for_people.size() <= kMaxLogLineBytes);
  CHECK(for_people.ends_with("…"));
  const std::string for_tools =
      format_log_line(LogStyle::json, false, kNoClock, LogLevel::info, worst, fields);
  CHECK(for_tools.size() <= kMaxLogLineBytes);
  const auto parsed = parse_json(for_tools);
  REQUIRE(parsed);
  CHECK((*parsed)["cut"] == true);
}

TEST_CASE("a level that is off computes nothing and writes nothing") {
  Capture capture;
  int computed = 0;
  const auto expensive = [&] { return ++computed; };
  TUTTI_LOG(debug, "hidden", {{"n", expensive()}});
  CHECK(computed == 0);
  CHECK(capture.lines.empty());
  set_log_level(LogLevel::debug);
  TUTTI_LOG(debug, "shown", {{"n", expensive()}});
  CHECK(capture.lines == std::vector<std::string>{"DEBUG shown n=1"});
  set_log_level(LogLevel::off);
  TUTTI_LOG(error, "hidden");
  CHECK(capture.lines.size() == 1);
}

TEST_CASE("the stamp is asked for each line") {
  Capture capture;
  int64_t now_ns = 0;
  set_log_stamp([&] {
    now_ns += 1'000'000'000;
    return LogStamp{LogStamp::Clock::virtual_, now_ns, "h1"};
  });
  TUTTI_LOG(info, "one");
  set_log_style(LogStyle::json);
  TUTTI_LOG(info, "two");
  CHECK(capture.lines ==
        std::vector<std::string>{
            "+1.000000000s INFO  h1 one",
            R"({"virtual_ns":2000000000,"level":"info","host":"h1","event":"two"})"});
}

TEST_CASE("threads that log at once keep their lines whole") {
  Capture capture;
  constexpr int kThreads = 4, kLines = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) TUTTI_LOG(info, "line", {{"thread", t}});
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE(capture.lines.size() == kThreads * kLines);
  for (int t = 0; t < kThreads; ++t) {
    CHECK(std::ranges::count(capture.lines, fmt::format("INFO  line thread={}", t)) == kLines);
  }
}

TEST_CASE("levels read back from their names") {
  for (const auto level :
       {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off}) {
    CHECK(*parse_log_level(log_level_name(level)) == level);
  }
  CHECK(parse_log_level("loud").error().text() ==
        "'loud' is not a log level; use debug, info, warn, error, off");
}

TEST_CASE("a limit lets a burst through, then one per interval, and counts the rest") {
  LogLimit limit(1s, 2);
  const Instant start = instant_from_ns(0) + 100s;
  CHECK(limit.allow(start));
  CHECK(limit.allow(start));
  CHECK(!limit.allow(start));
  CHECK(!limit.allow(start + 999ms));
  CHECK(limit.take_suppressed() == 2);
  CHECK(limit.take_suppressed() == 0);
  CHECK(limit.allow(start + 1s));
  CHECK(!limit.allow(start + 1999ms));
  CHECK(limit.allow(start + 2s));
  // A long silence earns a burst again, not more.
  CHECK(limit.allow(start + 100s));
  CHECK(limit.allow(start + 100s));
  CHECK(!limit.allow(start + 100s));
}

}  // namespace
}  // namespace tutti
