#include "world/real/this_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "world/real/adopt.h"
#include "world/real/fd.h"
#include "world/real/program.h"

namespace tutti {
namespace {

constexpr size_t kPartsPerWrite = 64;

// A regular file or a device that is always ready: written at once, read never.
class FileStream final : public Stream {
 public:
  FileStream(Handle file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  Result<void> shutdown_write() override { return {}; }
  Result<Credentials> peer_credentials() const override {
    return fail(Code::unsupported, "{} is no connection", name_);
  }

 private:
  bool try_read(Read& read) override {
    read.set(fail(Code::unsupported, "{} is for writing", name_));
    return true;
  }
  bool try_write(Write& write) override;
  void park_read(Read&) override {}
  void withdraw_read(Read&) override {}
  void park_write(Write&) override {}
  void withdraw_write(Write&) override {}

  Handle file_;
  std::string name_;
};

bool FileStream::try_write(Write& write) {
  while (!write.finished()) {
    std::array<iovec, kPartsPerWrite> parts;
    size_t count = 0;
    for (const Bytes part : write.parts().first(std::min(write.parts().size(), kPartsPerWrite))) {
      const Bytes rest = count == 0 ? part.subspan(write.offset()) : part;
      parts[count++] = {const_cast<std::byte*>(rest.data()), rest.size()};
    }
    const ssize_t sent = writev(file_.number(), parts.data(), static_cast<int>(count));
    if (sent >= 0) {
      write.advance(static_cast<size_t>(sent));
    } else if (errno != EINTR) {
      write.set(fail_errno(errno, "write to {}", name_));
      return true;
    }
  }
  return true;
}

Result<uint64_t> count_open_files(uint64_t limit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  // Without /proc there are worse troubles, and whoever has them is told of those.
  if (folder == nullptr && errno == ENOENT) return kStandardError + 1;
  if (folder == nullptr && (errno == EMFILE || errno == ENFILE)) return limit;  // none left to look
  if (folder == nullptr) return fail_errno(errno, "count open files");
  uint64_t count = 0;
  while (const dirent* entry = readdir(folder.get()))
    if (entry->d_name[0] != '.') ++count;
  return count - 1;  // the folder itself
}

}  // namespace

void fill_missing_standard_streams() {
  // The lowest free number is taken: exactly the missing ones.
  for (int number = open("/dev/null", O_RDWR); number >= 0; number = open("/dev/null", O_RDWR)) {
    if (number <= kStandardError) continue;
    close(number);
    return;
  }
}

bool is_terminal(int number) { return isatty(number) == 1; }

bool same_file(int number, int other) {
  struct stat one{}, two{};
  return fstat(number, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

Result<std::unique_ptr<Stream>> open_standard_stream(Loop& loop, int number) {
  const auto duplicate = [number] { return own_fd(fcntl(number, F_DUPFD_CLOEXEC, 3)); };
  const std::string name = number == kStandardInput   ? "standard input"
                           : number == kStandardError ? "standard error"
                                                      : "standard output";
  Handle file = duplicate();
  if (!file.open()) return fail_errno(errno, "open {}", name);
  auto stream = adopt_fd(loop, std::move(file));
  if (stream || stream.error().code() != Code::unsupported) return stream;
  file = duplicate();
  if (!file.open()) return fail_errno(errno, "open {}", name);
  return std::make_unique<FileStream>(std::move(file), name);
}

Result<uint64_t> allow_open_files(uint64_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return fail_errno(errno, "read the open-file limit");
  TRY(const uint64_t open, count_open_files(limit.rlim_cur));
  const uint64_t count = open + more;
  const rlim_t before = limit.rlim_cur;
  if (before >= count) return before;
  limit.rlim_cur = count;
  if (limit.rlim_max >= count && setrlimit(RLIMIT_NOFILE, &limit) == 0) return before;
  return fail(
      Code::exhausted,
      "{} open files are needed, {} are open and the limit is {} (at most {}); raise it with: "
      "ulimit -n {}",
      more, open, before, limit.rlim_max, count);
}

uint64_t allow_most_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

void ignore_signals(std::span<const int> numbers) {
  for (const int number : numbers) std::signal(number, SIG_IGN);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> settings;
  for (char** setting = environ; setting != nullptr && *setting != nullptr; ++setting)
    settings.emplace_back(*setting);
  return settings;
}

uint64_t memory_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t host_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

unsigned usable_cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::optional<std::string> own_program() {
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown || !std::filesystem::exists(path, unknown)) return std::nullopt;
  return path.string();
}

void restart_with(const char* variable, const char* value) {
  if (getenv(variable) != nullptr) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (words.empty()) return;
  std::vector<char*> arguments;
  for (size_t at = 0; at < words.size(); at = words.find('\0', at) + 1)
    arguments.push_back(words.data() + at);
  arguments.push_back(nullptr);
  setenv(variable, value, 1);
  execv("/proc/self/exe", arguments.data());
}

Error become(const std::vector<std::string>& arguments) {
  const std::vector<std::string> environment = own_environment();
  auto path = find_program(arguments[0], environment, "");
  if (!path) return path.error();
  std::vector<char*> words;  // execv's signature; it only reads
  for (const std::string& each : arguments) words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  execv(path->c_str(), words.data());
  return explain_exec(errno, *path, "");
}

void name_this_process(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

}  // namespace tutti
