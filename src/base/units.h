// Time and sizes, as types and as text.
//
// Duration and Instant are std::chrono types, so 5ms, 2s and arithmetic come for free. An Instant
// is a point on a World's monotonic clock: it means nothing on another host or in another world.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

using namespace std::chrono_literals;

using Duration = std::chrono::nanoseconds;

// The tag of World's monotonic time; it has no now() because only a World's Clock can tell.
struct MonotonicTime {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicTime>;
  static constexpr bool is_steady = true;
};
using Instant = MonotonicTime::time_point;

constexpr Instant kNever = Instant::max();

constexpr int64_t to_ns(Duration duration) { return duration.count(); }
constexpr int64_t to_ns(Instant instant) { return instant.time_since_epoch().count(); }
constexpr Instant instant_from_ns(int64_t ns) { return Instant(Duration(ns)); }
constexpr double to_seconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}

constexpr uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// "250ms", "1.5s", "2m30s", "1h"; a bare number is seconds.
Result<Duration> parse_duration(std::string_view text);
std::string format_duration(Duration duration);  // "1.50 s", "38.2 µs"

// "4096", "64KiB", "1.5GiB", "10MB".
Result<uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(uint64_t bytes);  // "1.5 GiB"

}  // namespace tutti
