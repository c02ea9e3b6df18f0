// What the runtime tells people and tools while it runs: an event in a few words, and fields.
//
//   TUTTI_LOG(warn, "worker died", {{"rank", rank}, {"signal", signal}});
//
// People get `14:03:09.120 WARN  node7 worker died rank=3 signal=9` on standard error, with colour
// only on a terminal; tools get one JSON object per line. A level that is off costs one branch: its
// fields are not even computed. Any thread may log; settings are changed while nobody else does.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "base/units.h"

namespace tutti {

enum class LogLevel : unsigned char { debug, info, warn, error, off };

std::string_view log_level_name(LogLevel level);
Result<LogLevel> parse_log_level(std::string_view text);

// A value in a log line. Strings are borrowed until the end of the statement.
struct LogField {
  using Value = std::variant<std::string_view, int64_t, uint64_t, double, bool, Duration>;
  std::string_view key;
  Value value;

  LogField(std::string_view key, std::string_view text) : key(key), value(text) {}
  LogField(std::string_view key, const char* text) : key(key), value(std::string_view(text)) {}
  LogField(std::string_view key, const std::string& text)
      : key(key), value(std::string_view(text)) {}
  LogField(std::string_view key, bool flag) : key(key), value(flag) {}
  LogField(std::string_view key, double number) : key(key), value(number) {}
  LogField(std::string_view key, Duration duration) : key(key), value(duration) {}
  LogField(std::string_view key, std::signed_integral auto number)
      : key(key), value(static_cast<int64_t>(number)) {}
  LogField(std::string_view key, std::unsigned_integral auto number)
      : key(key), value(static_cast<uint64_t>(number)) {}
};

// When and where a line was written.
struct LogStamp {
  enum class Clock : unsigned char {
    none,     // no clock: the line has no time
    utc,      // ns since 1970
    virtual_  // ns since the simulation began
  };
  Clock clock = Clock::none;
  int64_t ns = 0;
  std::string_view host;  // empty: not shown
};

enum class LogStyle : unsigned char { people, json };

// Longer lines are cut: for people they end with "…", in JSON they lose fields and say "cut".
constexpr size_t kMaxLogLineBytes = 16 * 1024;

void set_log_level(LogLevel level);
void set_log_style(LogStyle style);
// Asked once per line. A World sets it, so that simulated hosts log virtual time and their names.
void set_log_stamp(std::function<LogStamp()> stamp);
// Gets each line without its end of line; null goes back to standard error.
void set_log_sink(std::function<void(LogLevel level, std::string_view line)> sink);

// One line, as it is written; for sinks and tests.
std::string format_log_line(LogStyle style, bool colour, const LogStamp& stamp, LogLevel level,
                            std::string_view event, std::initializer_list<LogField> fields);

namespace log_internal {
extern std::atomic<LogLevel> least_level;
void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
}  // namespace log_internal

inline bool log_enabled(LogLevel level) {
  return level >= log_internal::least_level.load(std::memory_order_relaxed);
}

// Lets `burst` lines through, then one per `interval`, and counts the others:
//   if (limit.allow(now)) TUTTI_LOG(warn, "slow", {{"suppressed", limit.take_suppressed()}});
class LogLimit {
 public:
  LogLimit(Duration interval, int burst) : interval_(interval), burst_(burst), tokens_(burst) {}

  bool allow(Instant now);
  // How many were not let through since the last time this was asked.
  uint64_t take_suppressed();

 private:
  Duration interval_;
  int burst_;
  int tokens_;
  Instant refilled_{};
  uint64_t suppressed_ = 0;
};

}  // namespace tutti

#define TUTTI_LOG(level, ...)                                              \
  do {                                                                     \
    if (::tutti::log_enabled(::tutti::LogLevel::level)) {                  \
      ::tutti::log_internal::write(::tutti::LogLevel::level, __VA_ARGS__); \
    }                                                                      \
  } while (false)
