#include "world/real/process_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
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

// A process that has ended meanwhile is not alive; one that we cannot read about may be.
Result<Line> read_stat(int proc, const char* pid) {
  char path[32];
  const auto end = fmt::format_to_n(path, sizeof path - 1, "{}/stat", pid);
  *end.out = '\0';
  const Handle file = own_fd(openat(proc, path, O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t got = file.open() ? read(file.number(), text, sizeof text) : -1;
  if (got >= 0) return parse_stat({text, static_cast<size_t>(got)});
  if (errno == ENOENT || errno == ESRCH) return Line{};
  return fail_errno(errno, "read /proc/{}", path);
}

Handle take_reserve() { return own_fd(::open("/proc/self", O_PATH | O_CLOEXEC)); }

using Children = std::unordered_map<pid_t, std::vector<pid_t>>;

Result<Children> children_by_parent(DIR* proc) {
  Children children;
  rewinddir(proc);
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    const char* name_end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, name_end, pid).ptr != name_end) continue;
    TRY(const Line line, read_stat(dirfd(proc), entry->d_name));
    if (line.alive && line.parent != 0) children[line.parent].push_back(pid);
  }
  return children;
}

}  // namespace

Result<void> ProcessTree::open() {
  if (proc_ != nullptr) return {};
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
  if (proc == nullptr && errno != ENOENT) return fail_errno(errno, "list /proc");
  char self[32] = {};
  const bool mounted =
      proc != nullptr && readlinkat(dirfd(proc.get()), "self", self, sizeof self - 1) > 0;
  if (!mounted || number_at(self) != getpid())
    return fail(Code::unsupported,
                "/proc does not show the processes of this pid namespace, so none could be "
                "followed; mount it: mount -t proc proc /proc");
  Handle reserve = take_reserve();
  if (!reserve.open()) return fail_errno(errno, "keep a descriptor in reserve");
  proc_ = std::move(proc);
  reserve_ = std::move(reserve);
  return {};
}

Result<std::vector<pid_t>> ProcessTree::descendants_of(pid_t ancestor,
                                                       std::span<const pid_t> spare) {
  TRY_DO(open());
  reserve_.close();
  auto children = children_by_parent(proc_.get());
  reserve_ = take_reserve();
  if (!children) return fail(std::move(children).error());
  std::vector<pid_t> found;
  pid_t parent = ancestor;
  for (size_t next = 0;; ++next) {
    for (const pid_t child : (*children)[parent])
      if (std::ranges::find(spare, child) == spare.end()) found.push_back(child);
    if (next == found.size()) return found;
    parent = found[next];
  }
}

}  // namespace tutti
