#include "world/real/cache_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "world/real/fd.h"

namespace tutti {

std::optional<std::string> cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/tutti";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return std::nullopt;
  return std::string(home) + "/.cache/tutti";
}

Result<std::string> read_cache_file(const std::string& folder, std::string_view name,
                                    uint64_t most_bytes) {
  const std::string path = fmt::format("{}/{}", folder, name);
  const Handle file = own_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.open()) return fail_errno(errno, "open {}", path);
  std::string text(most_bytes + 1, '\0');
  size_t had = 0;
  while (had < text.size()) {
    const ssize_t count = read(file.number(), text.data() + had, text.size() - had);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read {}", path);
    if (count == 0) break;
    had += static_cast<size_t>(count);
  }
  if (had > most_bytes)
    return fail(Code::exhausted, "{} is larger than {} bytes", path, most_bytes);
  text.resize(had);
  return text;
}

Result<void> write_cache_file(const std::string& folder, std::string_view name,
                              std::string_view text) {
  const std::filesystem::path path = fmt::format("{}/{}", folder, name);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return fail_errno(error.value(), "make {}", path.parent_path().string());
  const std::string temporary = fmt::format("{}.{}", path.string(), getpid());
  const Handle file =
      own_fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.open()) return fail_errno(errno, "make {}", temporary);
  const ssize_t count = write(file.number(), text.data(), text.size());
  const bool whole = count == static_cast<ssize_t>(text.size());
  if (whole && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int why = count < 0 || whole ? errno : ENOSPC;
  unlink(temporary.c_str());
  return fail_errno(why, "write {}", path.string());
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace tutti
