// Many threads, a reader that looks while they write, and writers killed at any instruction.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "record/shared_ring.h"
#include "world/real/clock.h"

namespace tutti {
namespace {

const RecordKind kMark("test.mark", "number", "proof");

// Every field of a record follows from its number, so that a mix of two records shows.
int64_t proof_of(int64_t number) {
  return static_cast<int64_t>(static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15 + 12345);
}
SpanId span_of(int64_t number) { return static_cast<SpanId>(number) * 31 + 7; }

void mark(Recorder& recorder, int64_t number) {
  recorder.event(kMark, number, proof_of(number), span_of(number));
}
bool whole(const Recording& recording, const Record& record) {
  return record.b == proof_of(record.a) && record.span == span_of(record.a) &&
         record.op == Record::Op::event && recording.kinds.at(record.kind).name == "test.mark";
}
bool all_whole(const Recording& recording) {
  return std::all_of(recording.records.begin(), recording.records.end(),
                     [&](const Record& record) { return whole(recording, record); });
}

std::vector<std::thread> start(int threads, Recorder& recorder, int64_t count) {
  std::vector<std::thread> started;
  for (int t = 0; t < threads; ++t) {
    started.emplace_back([&recorder, t, count] {
      for (int64_t i = 0; i < count; ++i) mark(recorder, t * count + i);
    });
  }
  return started;
}

TEST_CASE("no event of many threads is lost while there is room") {
  constexpr int64_t kEach = 2000;
  RealClock clock;
  SharedRing ring(clock, {.lanes = 4, .records_per_lane = 16384});
  for (auto& thread : start(8, ring.recorder(), kEach)) thread.join();
  const Recording recording = ring.read();
  CHECK(recording.overwritten == 0);
  CHECK(recording.torn == 0);
  CHECK(all_whole(recording));
  std::map<int64_t, uint16_t> thread_of;
  for (const Record& record : recording.records) thread_of[record.a] = record.thread;
  CHECK(thread_of.size() == 8 * kEach);
  for (const auto& [number, thread] : thread_of) CHECK(thread == thread_of[number / kEach * kEach]);
}

TEST_CASE("counters of many threads add up") {
  RealClock clock;
  SharedRing ring(clock, {.lanes = 1, .records_per_lane = 8});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ring] {
      const Counter counter = ring.recorder().counter("test.count");
      for (int i = 0; i < 10'000; ++i) counter.add(3);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(ring.read().cells.at(0).value == 120'000);
}

// Eight slots and four threads: writers lap each other inside a slot all the time.
TEST_CASE("a reader beside writers that lap each other never sees a torn record") {
  constexpr int64_t kEach = 100'000;
  RealClock clock;
  SharedRing ring(clock, {.lanes = 1, .records_per_lane = 8, .kinds = 64, .cells = 1});
  auto threads = start(4, ring.recorder(), kEach);
  std::atomic<bool> done = false;
  uint64_t seen = 0;
  std::thread reader([&] {
    while (!done.load()) {
      const Recording recording = ring.read();
      CHECK(all_whole(recording));
      seen += recording.records.size();
    }
  });
  for (auto& thread : threads) thread.join();
  done = true;
  reader.join();
  CHECK(seen > 0);
  CHECK(ring.read().written() == 4 * kEach);
}

TEST_CASE("a reader that follows gets every record once, in order, while none is overwritten") {
  constexpr int64_t kEach = 5000;
  RealClock clock;
  SharedRing ring(clock, {.lanes = 2, .records_per_lane = 16384});
  auto threads = start(2, ring.recorder(), kEach);
  Recording before;
  std::map<int64_t, int> times;
  while (times.size() < 2 * kEach) {
    Recording now = ring.read();
    for (const Record& record : records_since(before, now)) ++times[record.a];
    before = std::move(now);
  }
  for (auto& thread : threads) thread.join();
  for (const auto& [number, count] : times) CHECK(count == 1);
}

// Two threads that started one after the other are in different lanes.
void record_until_killed(Recorder& recorder) {
  for (auto& thread : start(2, recorder, INT64_MAX / 2)) thread.join();
}

// What must hold of each of a dead process's two threads: its records are the last it wrote, whole
// and without a gap, but for the one it died in.
void check_left_behind(const Recording& recording, uint64_t lane_records) {
  CHECK(all_whole(recording));
  CHECK(recording.torn <= 2);
  std::map<uint16_t, std::vector<int64_t>> numbers;
  for (const Record& record : recording.records) numbers[record.thread].push_back(record.a);
  for (const auto& [thread, own] : numbers) {
    CHECK(own.size() <= lane_records);
    CHECK(own.back() - own.front() + 1 == static_cast<int64_t>(own.size()));
  }
}

TEST_CASE("a process killed while it records leaves whole records behind") {
  constexpr int kKills = 100;
  std::mt19937 random(1);
  for (int i = 0; i < kKills; ++i) {
    RealClock clock;
    SharedRing ring(clock, {.lanes = 2, .records_per_lane = 1024, .kinds = 64, .cells = 1});
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) record_until_killed(ring.recorder());
    while (ring.read().written() < 10) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WTERMSIG(status) == SIGKILL);
    const Recording recording = ring.read();
    check_left_behind(recording, 1024);
    CHECK(recording.closed_ns == 0);
  }
}

}  // namespace
}  // namespace tutti
