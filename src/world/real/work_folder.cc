#include "world/real/work_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "world/real/background.h"
#include "world/real/errors.h"
#include "world/real/fd.h"

namespace tutti {
namespace {

// Of another boot nobody can ask whether it still runs: on a folder that hosts share a lock may
// hold on its own host alone. Nothing is compiled for as long as this.
constexpr auto kForgotten = std::chrono::hours(24);

// Somebody may take a new folder for one that was left, before it is locked; hardly twice.
constexpr int kMostTries = 8;

Handle open_folder(const std::string& path) {
  return own_fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// PREFIX, and by which a folder of this boot of this host is known.
std::string prefix_here(const std::string& prefix) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{}{:08x}.", prefix, static_cast<uint32_t>(hash64(as_bytes(boot))));
}

// What is left of processes of this user that were killed.
void remove_left(const std::string& parent, const std::string& prefix) {
  const std::string here = prefix_here(prefix);
  const auto forgotten = std::filesystem::file_time_type::clock::now() - kForgotten;
  std::vector<std::string> left;
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    const auto written = at->last_write_time(unknown);
    if (name.starts_with(here) || (name.starts_with(prefix) && !unknown && written < forgotten))
      left.push_back(at->path().string());
  }
  for (const std::string& path : left) {
    const Handle folder = open_folder(path);
    struct stat is{};
    if (!folder.open() || fstat(folder.number(), &is) != 0 || is.st_uid != geteuid()) continue;
    if (flock(folder.number(), LOCK_EX | LOCK_NB) == 0) static_cast<void>(remove_folder(path));
  }
}

// Where there are no locks nobody can take the folder for one that was left, either.
bool is_ours(const Handle& folder) {
  struct stat is{};
  if (!folder.open()) return false;
  if (flock(folder.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(folder.number(), &is) == 0 && is.st_nlink > 0;
}

}  // namespace

Result<WorkFolder> WorkFolder::make(const std::string& parent, const std::string& prefix) {
  remove_left(parent, prefix);
  for (int i = 0; i < kMostTries; ++i) {
    std::string path = fmt::format("{}/{}XXXXXX", parent, prefix_here(prefix));
    if (mkdtemp(path.data()) == nullptr) return fail_errno(errno, "make a folder in {}", parent);
    Handle lock = open_folder(path);
    if (is_ours(lock)) return WorkFolder(std::move(path), std::move(lock));
  }
  return fail(Code::exists, "folders that are made in {} disappear", parent);
}

WorkFolder::~WorkFolder() {
  if (lock_.open()) static_cast<void>(remove_folder(path_));
}

}  // namespace tutti
