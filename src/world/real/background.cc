#include "world/real/background.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "world/real/fd.h"

namespace tutti {
namespace {

// In /proc/PID/stat, after the name in parentheses, which may hold anything.
constexpr int kStartField = 20;
constexpr off_t kLongLogBytes = 16 << 20;

struct Named {
  pid_t pid = 0;
  uint64_t start = 0;
};

std::string read_all(int fd) {
  std::string text;
  std::array<char, 1024> buffer;
  for (ssize_t got = read(fd, buffer.data(), buffer.size()); got > 0;
       got = read(fd, buffer.data(), buffer.size()))
    text.append(buffer.data(), static_cast<size_t>(got));
  return text;
}

std::string read_path(const std::string& path) {
  const Handle file = own_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.open() ? read_all(file.number()) : std::string();
}

// Nothing when there is no such process.
std::optional<uint64_t> start_of(pid_t pid) {
  const std::string stat = read_path(fmt::format("/proc/{}/stat", pid));
  size_t at = stat.rfind(')');
  for (int field = 0; field < kStartField && at != std::string::npos; ++field)
    at = stat.find(' ', at + 1);
  if (at == std::string::npos) return {};
  uint64_t start = 0;
  const char* from = stat.data() + at + 1;
  if (std::from_chars(from, stat.data() + stat.size(), start).ec != std::errc()) return {};
  return start;
}

std::optional<Named> read_name(const std::string& path) {
  const std::string text = read_path(path);
  Named named;
  const char* end = text.data() + text.size();
  const auto pid = std::from_chars(text.data(), end, named.pid);
  if (pid.ec != std::errc() || pid.ptr == end) return {};
  if (std::from_chars(pid.ptr + 1, end, named.start).ec != std::errc()) return {};
  return named;
}

// A descriptor of exactly that process, and no other that got its number.
Handle open_program(const std::string& pid_file) {
  const auto named = read_name(pid_file);
  if (!named) return Handle();
  Handle process = own_fd(static_cast<int>(syscall(SYS_pidfd_open, named->pid, 0)));
  if (!process.open() || start_of(named->pid) != named->start) return Handle();
  return process;
}

bool ends_within(const Handle& process, Duration patience) {
  pollfd wait{.fd = process.number(), .events = POLLIN, .revents = 0};
  const auto patience_ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  int ready = -1;
  do {
    ready = poll(&wait, 1, static_cast<int>(patience_ms));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

Result<void> make_private_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return fail_errno(error.value(), "make {}", path);
  if (chmod(path.c_str(), S_IRWXU) != 0) return fail_errno(errno, "chmod 700 {}", path);
  return {};
}

Result<std::string> make_temporary_folder(const std::string& prefix) {
  std::string path = fmt::format("/tmp/{}XXXXXX", prefix);
  if (mkdtemp(path.data()) == nullptr) return fail_errno(errno, "make a folder in /tmp");
  return path;
}

Result<void> remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return fail_errno(error.value(), "remove {}", path);
  return {};
}

Result<PidFile> PidFile::take(const std::string& path) {
  Handle file = own_fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.open()) return fail_errno(errno, "open {}", path);
  if (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock {}", path);
    return fail(Code::exists, "another process has {}: {}", path, read_all(file.number()));
  }
  const std::string text = fmt::format("{} {}\n", getpid(), start_of(getpid()).value_or(0));
  if (ftruncate(file.number(), 0) != 0 ||
      pwrite(file.number(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return fail_errno(errno, "write {}", path);
  return PidFile(std::move(file));
}

std::optional<pid_t> running_program(const std::string& pid_file) {
  const Handle process = open_program(pid_file);
  if (!process.open() || ends_within(process, 0s)) return {};
  return read_name(pid_file)->pid;
}

Result<void> end_program(const std::string& pid_file, Duration patience, int first) {
  const Handle process = open_program(pid_file);
  if (!process.open()) return {};
  for (const int number : {first, SIGKILL}) {
    if (syscall(SYS_pidfd_send_signal, process.number(), number, nullptr, 0) != 0) {
      if (errno == ESRCH) return {};
      return fail_errno(errno, "end the process of {}", pid_file);
    }
    if (ends_within(process, patience)) return {};
  }
  return fail(Code::deadline, "the process of {} does not end, not even of SIGKILL", pid_file);
}

bool expects_signal(pid_t pid, int number) {
  const std::string status = read_path(fmt::format("/proc/{}/status", pid));
  for (const std::string_view field : {"\nSigCgt:\t", "\nSigBlk:\t"}) {
    const size_t at = status.find(field);
    if (at == std::string::npos) continue;
    uint64_t mask = 0;
    std::from_chars(status.data() + at + field.size(), status.data() + status.size(), mask, 16);
    if ((mask >> (number - 1) & 1) != 0) return true;
  }
  return false;
}

bool ends_within(pid_t pid, Duration patience) {
  const Handle process = own_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return !process.open() || ends_within(process, patience);
}

Result<Handle> open_log_file(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && info.st_size > kLongLogBytes)
    std::rename(path.c_str(), (path + ".old").c_str());
  Handle file =
      own_fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.open()) return fail_errno(errno, "open {}", path);
  return file;
}

bool change_own_nice(int by) {
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, 0);
  return setpriority(PRIO_PROCESS, 0, now + by) == 0;
}

void give_own_nice_to_session() {
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (nice == 0 || getsid(0) != getpid()) return;
  const Handle file = own_fd(open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
  if (!file.open()) return;  // there are none
  const std::string text = fmt::format("{}", nice);
  // Whoever may not is as before.
  static_cast<void>(write(file.number(), text.data(), text.size()) == 0);
}

std::string current_folder() {
  std::array<char, PATH_MAX> path;
  return getcwd(path.data(), path.size()) != nullptr ? std::string(path.data()) : std::string("/");
}

}  // namespace tutti
