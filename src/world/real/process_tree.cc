#include "world/real/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/assert.h"
#include "world/real/fd.h"

namespace tutti {

namespace {

constexpr int kFieldsBetween = 16;  // of /proc/<pid>/stat, from the parent to the thread count

struct Line {
  bool alive = false;
  pid_t parent = 0;
};

int number_at(std::string_view text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "12 (na) me) S 1 …": the name may hold anything, so what follows its last parenthesis counts.
Line parse_stat(std::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= text.size()) return {};
  const char state = text[name_end + 2];
  const std::string_view from_parent = text.substr(name_end + 4);
  std::string_view from_threads = from_parent;
  for (int field = 0; field < kFieldsBetween && !from_threads.empty(); ++field)
    from_threads.remove_prefix(std::min(from_threads.find(' '), from_threads.size() - 1) + 1);
  // The first thread may end before the others; only then has a "zombie" more than one.
  const bool ended = state == 'X' || (state == 'Z' && number_at(from_threads) <= 1);
  return {.alive = !ended, .parent = number_at(from_parent)};
}

Line read_stat(int proc, const char* pid) {
  char path[32];
  const auto end = fmt::format_to_n(path, sizeof path - 1, "{}/stat", pid);
  *end.out = '\0';
  const Handle file = own_fd(openat(proc, path, O_RDONLY | O_CLOEXEC));
  if (!file.open()) return {};  // it ended meanwhile
  char text[512];
  const ssize_t got = read(file.number(), text, sizeof text);
  return got <= 0 ? Line{} : parse_stat({text, static_cast<size_t>(got)});
}

}  // namespace

Result<std::vector<pid_t>> descendants_of(pid_t ancestor) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
  if (proc == nullptr) return fail_errno(errno, "list /proc");
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  while (const dirent* entry = readdir(proc.get())) {
    pid_t pid = 0;
    const char* name_end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, name_end, pid).ptr != name_end) continue;
    const Line line = read_stat(dirfd(proc.get()), entry->d_name);
    if (line.alive && line.parent != 0) children[line.parent].push_back(pid);
  }
  std::vector<pid_t> found;
  pid_t parent = ancestor;
  for (size_t next = 0;; ++next) {
    const auto below = children.find(parent);
    if (below != children.end())
      found.insert(found.end(), below->second.begin(), below->second.end());
    if (next == found.size()) return found;
    parent = found[next];
  }
}

}  // namespace tutti
