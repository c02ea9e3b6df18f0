#include "world/real/environment_search.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "world/real/fd.h"

namespace tutti {
namespace {

// What the kernel takes of arguments and environment at most, with its usual limits.
constexpr size_t kMostBytes = 8 << 20;

// "" of one that has ended, or that is not ours to look into.
std::string read_environment(int proc, const char* pid) {
  const std::string path = std::string(pid) + "/environ";
  const Handle file = own_fd(openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[16384];
  while (file.open() && text.size() < kMostBytes) {
    const ssize_t got = read(file.number(), piece, sizeof piece);
    if (got <= 0) break;
    text.append(piece, static_cast<size_t>(got));
  }
  return text;
}

bool has_setting(std::string_view environment, std::string_view setting) {
  for (size_t at = environment.find(setting); at != std::string_view::npos;
       at = environment.find(setting, at + 1)) {
    const size_t end = at + setting.size();
    const bool begins = at == 0 || environment[at - 1] == '\0';
    if (begins && (end == environment.size() || environment[end] == '\0')) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<pid_t>> find_by_environment(const std::string& setting) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
  if (proc == nullptr) return fail_errno(errno, "list /proc");
  std::vector<pid_t> found;
  while (const dirent* entry = readdir(proc.get())) {
    pid_t pid = 0;
    const char* name_end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, name_end, pid).ptr != name_end || pid == getpid()) continue;
    if (has_setting(read_environment(dirfd(proc.get()), entry->d_name), setting))
      found.push_back(pid);
  }
  return found;
}

}  // namespace tutti
