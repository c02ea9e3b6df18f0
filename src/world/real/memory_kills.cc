#include "world/real/memory_kills.h"

#include <fcntl.h>

#include <charconv>

#include "world/real/cgroup_paths.h"
#include "world/real/groups.h"

namespace tutti {
namespace {

constexpr const char* kEvents = "memory.events";

Result<uint64_t> read_kills(int folder, const char* path) {
  TRY(const std::string text, read_kernel_file(folder, path));
  return parse_memory_kills(text);
}

}  // namespace

Result<uint64_t> parse_memory_kills(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (take_until(line, ' ') != "oom_kill") continue;
    uint64_t kills = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), kills);
    if (parsed.ec == std::errc() && parsed.ptr == line.data() + line.size()) return kills;
  }
  return fail(Code::unsupported, "this kernel does not count what it kills for memory");
}

std::vector<std::string> memory_kill_files(std::string_view mounts, std::string_view own_groups) {
  std::vector<std::string> files;
  for (const CgroupMount& mount : cgroup_mounts(mounts, "")) {
    std::string folder = mount.folder_of(own_cgroup(own_groups, ""));
    for (; folder.size() >= mount.at.size(); folder.resize(folder.rfind('/')))
      files.push_back(fmt::format("{}/{}", folder, kEvents));
  }
  for (const CgroupMount& mount : cgroup_mounts(mounts, "memory"))
    files.push_back(mount.folder_of(own_cgroup(own_groups, "memory")) + "/memory.oom_control");
  return files;
}

Result<uint64_t> MemoryKills::count(const ProcessGroup* group) {
  if (group != nullptr)
    if (auto kills = read_kills(group_folder(*group), kEvents)) return kills;
  if (!std::exchange(looked_, true)) {
    TRY(const std::string mounts, read_kernel_file(AT_FDCWD, "/proc/self/mountinfo"));
    TRY(const std::string own, read_kernel_file(AT_FDCWD, "/proc/self/cgroup"));
    for (std::string& file : memory_kill_files(mounts, own))
      if (file_.empty() && read_kills(AT_FDCWD, file.c_str())) file_ = std::move(file);
  }
  if (file_.empty()) return fail(Code::unsupported, "no memory controller counts for this process");
  return read_kills(AT_FDCWD, file_.c_str());
}

}  // namespace tutti
