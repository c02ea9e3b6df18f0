#include "world/real/cgroup_paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "world/real/errors.h"
#include "world/real/fd.h"

namespace tutti {
namespace {

constexpr size_t kMostFileBytes = 1 << 20;  // of mountinfo, or a list of members

// mountinfo writes spaces and backslashes as "\\040".
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, value, 8).ptr == digits + 3) {
      plain += static_cast<char>(value);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Whether a list as "rw,cpu,cpuacct" has the word.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty())
    if (take_until(list, ',') == word) return true;
  return false;
}

}  // namespace

Result<std::string> read_kernel_file(int folder, const char* path) {
  const Handle file = own_fd(openat(folder, path, O_RDONLY | O_CLOEXEC));
  if (!file.open()) return fail_errno(errno, "read {}", path);
  std::string text;
  constexpr size_t kChunk = 4096;
  for (;;) {
    const size_t before = text.size();
    if (before > kMostFileBytes) return fail(Code::exhausted, "{} is too long", path);
    text.resize(before + kChunk);
    const ssize_t got = read(file.number(), text.data() + before, kChunk);
    text.resize(before + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got < 0 && errno != EINTR) return fail_errno(errno, "read {}", path);
    if (got == 0) return text;
  }
}

std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw"
// "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
std::vector<CgroupMount> cgroup_mounts(std::string_view mounts, std::string_view controller) {
  std::vector<CgroupMount> found;
  while (!mounts.empty()) {
    std::string_view line = take_until(mounts, '\n');
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view system = line.substr(dash + 3);
    if (take_until(system, ' ') != (controller.empty() ? "cgroup2" : "cgroup")) continue;
    take_until(system, ' ');
    if (!controller.empty() && !has_word(system, controller)) continue;
    for (int skipped = 0; skipped < 3; ++skipped) take_until(line, ' ');
    std::string root = unescape(take_until(line, ' '));
    found.push_back({std::move(root), unescape(take_until(line, ' '))});
  }
  return found;
}

// "0::/path" is version 2's line; "4:memory:/path", "3:cpu,cpuacct:/path" are version 1's.
std::string_view own_cgroup(std::string_view own_groups, std::string_view controller) {
  while (!own_groups.empty()) {
    std::string_view line = take_until(own_groups, '\n');
    take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    if (controllers == controller || has_word(controllers, controller)) return line;
  }
  return {};
}

std::string CgroupMount::folder_of(std::string_view own) const {
  const std::string_view shown = root == "/" ? std::string_view() : std::string_view(root);
  const bool inside = own.starts_with(shown) && own.find("/..") == std::string_view::npos &&
                      (own.size() == shown.size() || own[shown.size()] == '/');
  const bool below = inside && own.size() > shown.size() + 1;
  return below ? at + std::string(own.substr(shown.size())) : at;
}

}  // namespace tutti
