// What the programs of the wire benchmark share, ours and the peers': they must measure alike.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

inline uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Processor time this process has used.
inline uint64_t cpu_ns() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(time.tv_usec) * 1'000;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

// Before a run is measured.
constexpr double kWarmUpSeconds = 0.3;

// The calls of one run. Not for several threads at once.
class Measurement {
 public:
  Measurement() { latencies_ns_.reserve(1 << 22); }

  // Begins to count; the server has used this much until now.
  void begin(uint64_t server_cpu_ns) {
    cpu_at_start_ = cpu_ns() + server_cpu_ns;
    start_ns_ = now_ns();
  }
  void add(uint64_t latency_ns) { latencies_ns_.push_back(static_cast<uint32_t>(latency_ns)); }
  void end() { end_ns_ = now_ns(); }

  // calls/s, p50 and p99 in µs, processor time of both processes per call in µs, as JSON.
  void print(uint64_t server_cpu_ns) {
    const auto calls = static_cast<double>(latencies_ns_.size());
    const double cpu = static_cast<double>(cpu_ns() + server_cpu_ns - cpu_at_start_);
    std::sort(latencies_ns_.begin(), latencies_ns_.end());
    const auto at = [&](double part) {
      return latencies_ns_[static_cast<size_t>(part * (calls - 1))] / 1e3;
    };
    std::printf(
        "{\"calls_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_us_per_call\": %.3f}\n",
        calls / (static_cast<double>(end_ns_ - start_ns_) / 1e9), at(0.5), at(0.99),
        cpu / calls / 1e3);
  }

 private:
  uint64_t start_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t cpu_at_start_ = 0;
  std::vector<uint32_t> latencies_ns_;
};
