#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/json.h"

namespace tutti {
namespace {

constexpr std::string_view kLevelNames[] = {"debug", "info", "warn", "error", "off"};

struct Shown {
  const char* name;
  const char* colour;
};
constexpr Shown kShown[] = {
    {"DEBUG", "\x1b[2m"}, {"INFO ", "\x1b[32m"}, {"WARN ", "\x1b[33m"}, {"ERROR", "\x1b[1;31m"}};
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

// No text takes more of a line than this; written in JSON it can grow sixfold and still fits.
constexpr size_t kMaxLogTextBytes = 2 * 1024;

struct Settings {
  std::mutex mutex;  // one line at a time
  LogStyle style = LogStyle::people;
  std::function<LogStamp()> stamp;
  std::function<void(LogLevel, std::string_view)> sink;
};

// Never destroyed: threads may log until the very end of the process.
Settings& settings() {
  static Settings& only = *new Settings;
  return only;
}

bool standard_error_is_a_terminal() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

void write_to_standard_error(std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string utc_time_of_day(int64_t ns) {
  using namespace std::chrono;
  const hh_mm_ss time(floor<milliseconds>(nanoseconds(ns)) - floor<days>(nanoseconds(ns)));
  return fmt::format("{:02}:{:02}:{:02}.{:03}", time.hours().count(), time.minutes().count(),
                     time.seconds().count(), time.subseconds().count());
}

std::string utc_iso(int64_t ns) {
  using namespace std::chrono;
  const auto day = floor<days>(nanoseconds(ns));
  const year_month_day date{sys_days(day)};
  const hh_mm_ss time(floor<microseconds>(nanoseconds(ns)) - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count(),
                     time.subseconds().count());
}

// Cuts between characters, never inside one.
std::string cut(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  constexpr std::string_view kEllipsis = "…";
  size_t size = most_bytes - kEllipsis.size();
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return std::string(text.substr(0, size)).append(kEllipsis);
}

std::string quoted(std::string_view text) { return dump_json(Json(cut(text, kMaxLogTextBytes))); }

// What makes a value hard to read or to split without quotes around it.
bool needs_quotes(std::string_view text) {
  return text.empty() || std::ranges::any_of(text, [](char c) {
           return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' ||
                  c == '\x7f';
         });
}

struct AppendForPeople {
  std::string& line;
  void operator()(std::string_view text) const {
    line += needs_quotes(text) ? quoted(text) : cut(text, kMaxLogTextBytes);
  }
  void operator()(Duration duration) const {
    // "1.50 s" is one value: no space inside.
    std::string text = format_duration(duration);
    std::erase(text, ' ');
    line += text;
  }
  void operator()(double number) const { line += fmt::format("{:.6g}", number); }
  void operator()(const auto& value) const { line += fmt::format("{}", value); }
};

struct AppendJson {
  std::string& line;
  void operator()(std::string_view text) const { line += quoted(text); }
  void operator()(Duration duration) const { line += dump_json(Json(to_seconds(duration))); }
  void operator()(double number) const {
    // JSON has no infinities; tools read them as strings.
    line += std::isfinite(number) ? dump_json(Json(number)) : fmt::format("\"{}\"", number);
  }
  void operator()(const auto& value) const { line += fmt::format("{}", value); }
};

std::string line_for_people(bool colour, const LogStamp& stamp, LogLevel level,
                            std::string_view event, std::initializer_list<LogField> fields) {
  const auto& [name, paint] = kShown[static_cast<size_t>(level)];
  std::string line;
  if (stamp.clock == LogStamp::Clock::utc) line += utc_time_of_day(stamp.ns) + ' ';
  if (stamp.clock == LogStamp::Clock::virtual_) {
    line += fmt::format("+{:.9f}s ", static_cast<double>(stamp.ns) * 1e-9);
  }
  line += colour ? fmt::format("{}{}{} ", paint, name, kPlain) : fmt::format("{} ", name);
  if (!stamp.host.empty()) line += fmt::format("{} ", stamp.host);
  // An event is a sentence: only what would break the line is changed in it.
  for (const char c : cut(event, kMaxLogTextBytes))
    line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  for (const auto& [key, value] : fields) {
    line += colour ? fmt::format(" {}{}={}", kDim, key, kPlain) : fmt::format(" {}=", key);
    std::visit(AppendForPeople{line}, value);
  }
  return cut(line, kMaxLogLineBytes);
}

std::string line_of_json(const LogStamp& stamp, LogLevel level, std::string_view event,
                         std::initializer_list<LogField> fields) {
  std::string line = "{";
  if (stamp.clock == LogStamp::Clock::utc)
    line += fmt::format(R"("time":"{}",)", utc_iso(stamp.ns));
  if (stamp.clock == LogStamp::Clock::virtual_)
    line += fmt::format(R"("virtual_ns":{},)", stamp.ns);
  line += fmt::format(R"("level":"{}",)", log_level_name(level));
  if (!stamp.host.empty()) line += fmt::format(R"("host":{},)", quoted(stamp.host));
  line += fmt::format(R"("event":{})", quoted(event));
  constexpr std::string_view kCut = R"(,"cut":true)";
  for (const auto& [key, value] : fields) {
    std::string member = fmt::format(",{}:", quoted(key));
    std::visit(AppendJson{member}, value);
    if (line.size() + member.size() + kCut.size() + 1 > kMaxLogLineBytes) {
      line += kCut;
      break;
    }
    line += member;
  }
  return line + "}";
}

}  // namespace

namespace log_internal {

std::atomic<LogLevel> least_level{LogLevel::info};

void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  Settings& with = settings();
  const std::lock_guard one_at_a_time(with.mutex);
  const LogStamp stamp = with.stamp ? with.stamp() : LogStamp();
  const bool colour = !with.sink && standard_error_is_a_terminal();
  std::string line = format_log_line(with.style, colour, stamp, level, event, fields);
  if (with.sink) {
    with.sink(level, line);
  } else {
    write_to_standard_error(std::move(line));
  }
}

}  // namespace log_internal

std::string_view log_level_name(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

Result<LogLevel> parse_log_level(std::string_view text) {
  for (auto level = LogLevel::debug; level <= LogLevel::off;
       level = static_cast<LogLevel>(static_cast<int>(level) + 1)) {
    if (log_level_name(level) == text) return level;
  }
  return fail(Code::invalid, "'{}' is not a log level; use {}", text, fmt::join(kLevelNames, ", "));
}

std::string format_log_line(LogStyle style, bool colour, const LogStamp& stamp, LogLevel level,
                            std::string_view event, std::initializer_list<LogField> fields) {
  return style == LogStyle::json ? line_of_json(stamp, level, event, fields)
                                 : line_for_people(colour, stamp, level, event, fields);
}

void set_log_level(LogLevel level) {
  log_internal::least_level.store(level, std::memory_order_relaxed);
}

void set_log_style(LogStyle style) {
  const std::lock_guard lock(settings().mutex);
  settings().style = style;
}

void set_log_stamp(std::function<LogStamp()> stamp) {
  const std::lock_guard lock(settings().mutex);
  settings().stamp = std::move(stamp);
}

void set_log_sink(std::function<void(LogLevel, std::string_view)> sink) {
  const std::lock_guard lock(settings().mutex);
  settings().sink = std::move(sink);
}

bool LogLimit::allow(Instant now) {
  if (tokens_ < burst_ && now - refilled_ >= interval_) {
    const auto gained = (now - refilled_) / interval_;
    tokens_ = static_cast<int>(std::min<int64_t>(burst_, tokens_ + gained));
    refilled_ += gained * interval_;
  }
  if (tokens_ == 0) {
    ++suppressed_;
    return false;
  }
  // A full bucket has been waiting for this moment: its next token is due from now.
  if (tokens_ == burst_) refilled_ = now;
  --tokens_;
  return true;
}

uint64_t LogLimit::take_suppressed() { return std::exchange(suppressed_, 0); }

}  // namespace tutti
