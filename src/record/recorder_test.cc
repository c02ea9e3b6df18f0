#include "record/recorder.h"

#include <doctest/doctest.h>

#include <optional>

#include "record/shared_ring.h"
#include "world/manual_clock.h"

namespace tutti {
namespace {

const RecordKind kSend("test.send", "bytes", "peer");
const RecordKind kStep("test.step", "step");

struct Bench {
  Executor executor;
  ManualClock clock;
  SharedRing ring;

  explicit Bench(const Recorder::Options& options = {.process = "worker 3", .lanes = 1})
      : ring((clock.advance(1s), clock), options) {}
  Recorder& recorder() { return ring.recorder(); }
};

TEST_CASE("an event comes back as it was recorded") {
  Bench bench;
  bench.clock.advance(5ms);
  bench.recorder().event(kSend, 4096, -7);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 1);
  const Record& record = recording.records[0];
  CHECK(record.sequence == 1);
  CHECK(record.time_ns == 1'005'000'000);
  CHECK(record.op == Record::Op::event);
  CHECK(record.thread > 0);
  CHECK(record.a == 4096);
  CHECK(record.b == -7);
  CHECK(recording.kinds.at(record.kind).name == "test.send");
  CHECK(recording.kinds.at(record.kind).a_label == "bytes");
  CHECK(recording.kinds.at(record.kind).b_label == "peer");
  CHECK(recording.overwritten == 0);
  CHECK(recording.torn == 0);
}

TEST_CASE("a recording says whose it is, when it began and whether it was closed") {
  Bench bench;
  const Recording open = bench.ring.read();
  CHECK(open.host == "node7");
  CHECK(open.process == "worker 3");
  CHECK(open.pid == static_cast<uint64_t>(getpid()));
  CHECK(open.created_ns == 1'000'000'000);
  CHECK(open.created_unix_ns == 1'000'000'000);
  CHECK(open.closed_ns == 0);
  bench.clock.advance(2s);
  bench.ring.close();
  CHECK(bench.ring.read().closed_ns == 3'000'000'000);
}

TEST_CASE("a ring that is full keeps the newest events and counts the others") {
  Bench bench({.lanes = 1, .records_per_lane = 8});
  for (int i = 0; i < 8; ++i) bench.recorder().event(kSend, i);
  CHECK(bench.ring.read().overwritten == 0);
  for (int i = 8; i < 1003; ++i) bench.recorder().event(kSend, i);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 8);
  for (int i = 0; i < 8; ++i) CHECK(recording.records[i].a == 995 + i);
  CHECK(recording.overwritten == 995);
  CHECK(recording.torn == 0);
  CHECK(recording.written() == 1003);
}

TEST_CASE("a span is recorded when it begins and, with its duration, when it ends") {
  Bench bench;
  {
    const Span step = bench.recorder().span(kStep, 12);
    bench.clock.advance(30ms);
  }
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 2);
  const Record& begin = recording.records[0];
  const Record& end = recording.records[1];
  CHECK(begin.op == Record::Op::begin);
  CHECK(begin.span == begin.sequence);
  CHECK(begin.parent == 0);
  CHECK(end.op == Record::Op::end);
  CHECK(end.span == begin.span);
  CHECK(end.began_ns == begin.time_ns);
  CHECK(end.time_ns - end.began_ns == 30'000'000);
  CHECK(end.a == 12);
}

TEST_CASE("spans and events know the span they are in") {
  Bench bench;
  const Span step = bench.recorder().span(kStep, 1);
  {
    const Span send = step.child(kSend, 100);
    send.event(kSend, 50);
    const Span same = bench.recorder().span(kSend, 7, 0, step.id());
  }
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 6);
  CHECK(recording.records[1].parent == step.id());
  CHECK(recording.records[2].span == recording.records[1].span);
  CHECK(recording.records[3].parent == step.id());
}

TEST_CASE("a span that was moved ends once, with what was set last") {
  Bench bench;
  std::optional<Span> later;
  {
    Span span = bench.recorder().span(kSend, 1, 1);
    later.emplace(std::move(span));
  }
  CHECK(bench.ring.read().records.size() == 1);
  later->set(2, 3);
  later->end();
  later.reset();
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 2);
  CHECK(recording.records[1].a == 2);
  CHECK(recording.records[1].b == 3);
}

TEST_CASE("assigning to a span ends the one it held") {
  Bench bench;
  Span span = bench.recorder().span(kStep, 1);
  span = bench.recorder().span(kStep, 2);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 3);
  CHECK(recording.records[2].op == Record::Op::end);
  CHECK(recording.records[2].a == 1);
}

Task<void> work_in_span(Recorder& recorder, Clock& clock, int number) {
  const Span step = recorder.span(kStep, number);
  auto slept = co_await clock.sleep(number * 10ms);
  CHECK(slept);
  step.event(kSend, number);
}

TEST_CASE("spans of coroutines that take turns keep to their own") {
  Bench bench;
  Scope root{Scope::Root{}};
  for (int i = 1; i <= 3; ++i) root.spawn(work_in_span(bench.recorder(), bench.clock, i));
  bench.clock.advance(100ms);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.records.size() == 9);
  for (size_t i = 0; i < 3; ++i) {
    const Record& begin = recording.records[i];
    const Record& event = recording.records[3 + 2 * i];
    const Record& end = recording.records[4 + 2 * i];
    CHECK(event.span == begin.span);
    CHECK(end.span == begin.span);
    CHECK(end.time_ns - end.began_ns == begin.a * 10'000'000);
  }
}

TEST_CASE("readers see counters and gauges live") {
  Bench bench;
  const Counter sent = bench.recorder().counter("test.sent_bytes");
  const Gauge queued = bench.recorder().gauge("test.queued");
  sent.add(40);
  sent.add();
  bench.recorder().counter("test.sent_bytes").add();
  queued.set(10);
  queued.add(-13);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.cells.size() == 2);
  CHECK(recording.cells[0].name == "test.sent_bytes");
  CHECK_FALSE(recording.cells[0].gauge);
  CHECK(recording.cells[0].value == 42);
  CHECK(recording.cells[1].name == "test.queued");
  CHECK(recording.cells[1].gauge);
  CHECK(recording.cells[1].value == -3);
}

TEST_CASE("a disabled recorder does nothing, and so does what it gives") {
  Recorder disabled;
  CHECK_FALSE(disabled.enabled());
  disabled.event(kSend, 1, 2);
  Span span = disabled.span(kStep, 1);
  CHECK(span.id() == 0);
  span.event(kSend);
  const Span child = span.child(kSend);
  disabled.counter("test.nothing").add();
  disabled.gauge("test.nothing").set(1);
}

TEST_CASE("a kind made after the recorder is named when it is first used") {
  Bench bench;
  const RecordKind late("test.late", "a");
  CHECK(late.index() >= bench.ring.read().kinds.size());
  bench.recorder().event(late, 5);
  const Recording recording = bench.ring.read();
  CHECK(recording.kinds.at(recording.records.at(0).kind).name == "test.late");
}

TEST_CASE("equal names are one kind") {
  CHECK(RecordKind("test.send").index() == kSend.index());
  CHECK(RecordKind("test.other").index() != kSend.index());
}

TEST_CASE("kinds past the table are recorded as unnamed and the recording says so") {
  Bench bench({.lanes = 1, .kinds = 1});
  bench.recorder().event(kSend, 5);
  const Recording recording = bench.ring.read();
  CHECK(recording.refused_names > 0);
  REQUIRE(recording.records.size() == 1);
  CHECK(recording.records[0].a == 5);
  CHECK(recording.kinds.at(recording.records[0].kind).name == "unnamed");
}

TEST_CASE("a counter past the table, or named like a gauge, does nothing and is told") {
  Bench bench({.lanes = 1, .cells = 1});
  const Counter first = bench.recorder().counter("test.first");
  const Counter second = bench.recorder().counter("test.second");
  const Gauge other = bench.recorder().gauge("test.first");
  first.add(1);
  second.add(2);
  other.set(3);
  const Recording recording = bench.ring.read();
  REQUIRE(recording.cells.size() == 1);
  CHECK(recording.cells[0].value == 1);
  CHECK(recording.refused_names == 2);
}

TEST_CASE("long names are cut between characters") {
  std::string name(RecordKind::kMaxTextBytes - 1, 'x');
  CHECK(cut_text(name + "é", RecordKind::kMaxTextBytes) == name);
  Bench bench;
  bench.recorder().counter(name + "é").add();
  bench.recorder().event(RecordKind(name + "é", "label"));
  const Recording recording = bench.ring.read();
  CHECK(recording.cells.at(0).name == name);
  CHECK(recording.kinds.at(recording.records.at(0).kind).name == name);
}

TEST_CASE("options out of range are refused with the limit") {
  CHECK(Recorder::size_bytes({.lanes = 64}).error().text() ==
        "a recording has 1 to 32 lanes, not 64");
  CHECK(Recorder::size_bytes({.records_per_lane = 1000}).error().text() ==
        "a recording has a power of two of records per lane, not 1000; try 1024");
  CHECK_FALSE(Recorder::size_bytes({.kinds = 0}));
  CHECK_FALSE(Recorder::size_bytes({.cells = 1U << 20}));
}

}  // namespace
}  // namespace tutti
