#include "record/dump.h"

#include <doctest/doctest.h>

#include "base/json.h"

namespace tutti {
namespace {

Recording sample() {
  Recording recording{
      .host = "node7", .process = "worker 3", .pid = 41, .created_ns = 1'000'000'000};
  recording.created_unix_ns = 1'700'000'000'000'000'000;
  recording.kinds = {{"unnamed", "a", "b"}, {"train.step", "step", ""}, {"wire.send", "bytes", ""}};
  using Op = Record::Op;
  recording.records = {
      {.sequence = 1,
       .time_ns = 1'000'500'000,
       .kind = 1,
       .thread = 1,
       .op = Op::begin,
       .span = 1,
       .a = 12},
      {.sequence = 2, .time_ns = 1'001'000'000, .kind = 2, .thread = 2, .span = 1, .a = -5},
      {.sequence = 3,
       .time_ns = 1'039'000'000,
       .kind = 1,
       .thread = 1,
       .op = Op::end,
       .span = 1,
       .began_ns = 1'000'500'000,
       .a = 12,
       .b = 3}};
  recording.cells = {{"sent", false, 42}, {"queued", true, -3}};
  recording.overwritten = 7;
  recording.torn = 1;
  return recording;
}

TEST_CASE("people get a table with relative times, labels and durations") {
  const Recording recording = sample();
  CHECK(dump_heading(recording) ==
        "worker 3 (pid 41) on node7, since 2023-11-14 22:13:20 UTC; open: its process still "
        "records, or was killed\n"
        "       seconds thread   what\n");
  CHECK(dump_records(recording, recording.records) ==
        "      0.000500      1 > train.step step=12 [span 1]\n"
        "      0.001000      2   wire.send bytes=-5 [in 1]\n"
        "      0.039000      1 < train.step step=12 b=3 [span 1 took 38.5 ms]\n");
  CHECK(dump_totals(recording, 8) ==
        "counter sent = 42\n"
        "gauge   queued = -3\n"
        "11 events recorded, 8 lost (7 overwritten by newer ones, 1 unfinished)\n");
}

TEST_CASE("tools get one JSON object per line") {
  const Recording recording = sample();
  const std::string lines = dump_records_json(recording, recording.records);
  const auto last = parse_json(lines.substr(lines.rfind("{\"a\"")));
  REQUIRE(last);
  CHECK((*last)["type"] == "end");
  CHECK((*last)["kind"] == "train.step");
  CHECK((*last)["began_ns"] == 1'000'500'000);
  const auto totals = parse_json(dump_totals_json(recording, 8));
  REQUIRE(totals);
  CHECK((*totals)["counters"]["sent"] == 42);
  CHECK((*totals)["gauges"]["queued"] == -3);
  CHECK((*totals)["lost"] == 8);
}

TEST_CASE("records are selected by kind, by the beginning of a kind and by time") {
  const Recording recording = sample();
  const auto count = [&](const DumpOptions& options) {
    return select_records(recording, recording.records, options).size();
  };
  CHECK(count({}) == 3);
  CHECK(count({.kinds = {"train.step"}}) == 2);
  CHECK(count({.kinds = {"wire."}}) == 1);
  CHECK(count({.kinds = {"wire"}}) == 0);
  CHECK(count({.since_ns = 1'001'000'000}) == 2);
}

TEST_CASE("names that would steer a terminal are shown harmless") {
  Recording recording = sample();
  recording.kinds[2].name = "\x1b[2Jgone";
  CHECK(dump_records(recording, {&recording.records[1], 1}) ==
        "      0.001000      2   .[2Jgone bytes=-5 [in 1]\n");
}

}  // namespace
}  // namespace tutti
