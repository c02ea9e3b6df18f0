// Prints what one event costs, in ns of its thread's processor time:
//   bench_record events THREADS COUNT    events of the recorder, COUNT by each thread
//   bench_record clock THREADS COUNT     only the time stamps they take
//   bench_record write THREADS COUNT     a write(2) of as many bytes to a file in /dev/shm
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include "record/shared_ring.h"
#include "world/real/clock.h"

namespace tutti {
namespace {

const RecordKind kSend("bench.send", "bytes", "peer");

void record_events(Recorder& recorder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) recorder.event(kSend, i, i * 3);
}

void read_clock(const Clock& clock, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += to_ns(clock.now());
  asm volatile("" : : "r"(sum));
}

void write_records(const Clock& clock, int64_t count) {
  const int file = open("/dev/shm", O_TMPFILE | O_WRONLY, 0600);
  TUTTI_ASSERT(file >= 0, "/dev/shm is there");
  constexpr int64_t kKept = 16384;
  for (int64_t i = 0; i < count; ++i) {
    const record_layout::Slot slot{.time_ns = to_ns(clock.now()), .a = i, .b = i * 3};
    const auto offset = static_cast<off_t>(i % kKept * static_cast<int64_t>(sizeof slot));
    const ssize_t written = pwrite(file, &slot, sizeof slot, offset);
    TUTTI_ASSERT(written == sizeof slot, "/dev/shm has a megabyte left");
  }
  close(file);
}

int64_t processor_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

int run(std::string_view what, int threads, int64_t count) {
  RealClock clock;
  SharedRing ring(clock, {.process = "bench"});
  const auto work = [&](int64_t times) {
    if (what == "events") record_events(ring.recorder(), times);
    if (what == "clock") read_clock(clock, times);
    if (what == "write") write_records(clock, times);
  };
  std::atomic<int64_t> taken_ns = 0;
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      work(count / 4);  // touches the pages
      const int64_t start_ns = processor_ns();
      work(count);
      taken_ns += processor_ns() - start_ns;
    });
  }
  for (std::thread& thread : running) thread.join();
  fmt::print("{:.3f}\n", static_cast<double>(taken_ns) / static_cast<double>(count * threads));
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return tutti::run(argv[1], std::atoi(argv[2]), std::atoll(argv[3]));
}
