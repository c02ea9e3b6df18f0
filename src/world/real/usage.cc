#include "world/real/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>

#include "world/real/fd.h"

namespace tutti {
namespace {

// Fields of /proc/<pid>/stat behind the name, from the state on; see proc(5).
enum Field : uint8_t {
  kGroup = 2,
  kUserTime = 11,
  kSystemTime = 12,
  kUserTimeOfEnded = 13,
  kSystemTimeOfEnded = 14,
  kStart = 19,
  kResidentPages = 21,
  kFields = 22,
};
using Fields = std::array<int64_t, kFields>;

// "12 (na) me) S 1 …": the name may hold anything, so what follows its last parenthesis counts.
std::optional<Fields> parse_stat(std::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= text.size()) return {};
  text.remove_prefix(name_end + 4);
  Fields fields{};
  for (size_t field = 1; field < kFields; ++field) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), fields[field]);
    if (parsed.ec != std::errc()) return {};
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    if (!text.empty()) text.remove_prefix(1);
  }
  return fields;
}

std::optional<Fields> read_stat(int proc, const char* pid) {
  char path[32];
  const auto end = fmt::format_to_n(path, sizeof path - 1, "{}/stat", pid);
  *end.out = '\0';
  const Handle file = own_fd(openat(proc, path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file.open() ? read(file.number(), text, sizeof text) : -1;
  if (got <= 0) return {};
  return parse_stat({text, static_cast<size_t>(got)});
}

Duration of_ticks(int64_t ticks) {
  static const int64_t tick_ns = 1'000'000'000 / std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return Duration(ticks * tick_ns);
}

// What /proc counts starts from.
Duration since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
}

}  // namespace

std::map<pid_t, Usage> read_usage(std::span<const pid_t> leaders) {
  std::map<pid_t, Usage> families;
  if (leaders.empty()) return families;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
  if (proc == nullptr) return families;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const Duration now = since_boot();
  for (const pid_t leader : leaders) families.try_emplace(leader);
  std::map<pid_t, Duration> ages;
  while (const dirent* entry = readdir(proc.get())) {
    pid_t pid = 0;
    const char* name_end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, name_end, pid).ptr != name_end) continue;
    const auto fields = read_stat(dirfd(proc.get()), entry->d_name);
    if (!fields) continue;
    const auto family = families.find(static_cast<pid_t>((*fields)[kGroup]));
    if (family == families.end()) continue;
    Usage& usage = family->second;
    usage.processor += of_ticks((*fields)[kUserTime] + (*fields)[kSystemTime] +
                                (*fields)[kUserTimeOfEnded] + (*fields)[kSystemTimeOfEnded]);
    usage.memory_bytes +=
        static_cast<uint64_t>(std::max<int64_t>(0, (*fields)[kResidentPages])) * page_bytes;
    if (pid == family->first)
      ages[pid] = std::max(Duration::zero(), now - of_ticks((*fields)[kStart]));
  }
  std::erase_if(families, [&](const auto& family) { return !ages.contains(family.first); });
  for (auto& [leader, usage] : families) usage.age = ages[leader];
  return families;
}

}  // namespace tutti
