#include "world/real/groups.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <thread>

#include "world/real/cgroup_paths.h"
#include "world/real/errors.h"
#include "world/real/fd.h"

namespace tutti {

namespace {

constexpr std::string_view kPrefix = "tutti-";  // people find ours; no name is one of cgroup's own
constexpr size_t kMostNameBytes = 200;
constexpr int kMostDepth = 16;    // of groups that members made themselves
constexpr int kKillRounds = 100;  // without cgroup.kill: forks may outrun a round
constexpr int kRemoveTries = 10;
constexpr int kSweepTries = 100;
constexpr auto kRemovePause = 1ms;  // the kernel is busy with the last member that long

Result<void> write_all(int folder, const char* path, std::string_view text) {
  const Handle file = own_fd(openat(folder, path, O_WRONLY | O_CLOEXEC));
  if (!file.open()) return fail_errno(errno, "open {}", path);
  const ssize_t put = write(file.number(), text.data(), text.size());
  if (put != static_cast<ssize_t>(text.size())) return fail_errno(errno, "write {}", path);
  return {};
}

template <class Number>
Number number_of(std::string_view text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool may_write(const std::string& parent) {
  const std::string members = parent + "/cgroup.procs";
  return access(parent.c_str(), W_OK) == 0 && access(members.c_str(), W_OK) == 0;
}

template <class Visit>
void for_each_subgroup(int folder, const char* path, Visit visit) {
  const int listed = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listed < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(listed), &closedir);
  while (const dirent* entry = readdir(entries.get()))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(entry->d_name);
}

void add_members(int folder, int depth, std::vector<pid_t>& members) {
  auto text = read_kernel_file(folder, "cgroup.procs");
  if (!text) return;  // the group is gone, and with it its members
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = take_until(rest, '\n');
    pid_t pid = 0;
    std::from_chars(line.data(), line.data() + line.size(), pid);
    if (pid > 0) members.push_back(pid);
  }
  if (depth == kMostDepth) return;
  for_each_subgroup(folder, ".", [&](const char* name) {
    const Handle below = own_fd(openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (below.open()) add_members(below.number(), depth + 1, members);
  });
}

// When a process started, in the kernel's ticks; 0 when only its exit status is left.
Result<uint64_t> process_start(pid_t pid) {
  TRY(const std::string text,
      read_kernel_file(AT_FDCWD, fmt::format("/proc/{}/stat", pid).c_str()));
  // The name may hold anything; after it come the fields from the third on.
  constexpr int kFieldsToStart = 19;
  std::string_view rest(text);
  const size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos) return fail(Code::corrupt, "/proc/{}/stat is cut", pid);
  rest.remove_prefix(std::min(name_end + 2, rest.size()));
  if (rest.starts_with('Z') || rest.starts_with('X')) return 0;
  for (int field = 0; field < kFieldsToStart; ++field) take_until(rest, ' ');
  return number_of<uint64_t>(take_until(rest, ' '));
}

uint64_t own_pid_namespace() {
  struct stat info{};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

void remove_subgroups(int folder, int depth) {
  if (depth == kMostDepth) return;
  for_each_subgroup(folder, ".", [&](const char* name) {
    const Handle below = own_fd(openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (below.open()) remove_subgroups(below.number(), depth + 1);
    unlinkat(folder, name, AT_REMOVEDIR);
  });
}

}  // namespace

class RealGroup final : public ProcessGroup, private Watch {
 public:
  RealGroup(Loop& loop, std::string name, std::string path, Handle folder)
      : loop_(loop), name_(std::move(name)), path_(std::move(path)), folder_(std::move(folder)) {}
  ~RealGroup() override;

  const std::string& name() const override { return name_; }
  int folder() const { return folder_.number(); }
  bool occupied() const;
  Result<void> kill() override;
  Task<Result<void>> emptied() override;
  Result<std::vector<pid_t>> members() override;
  bool as_new() override;

 private:
  class Changed;
  void on_ready(uint32_t events) override;
  bool populated(int events_file) const;
  Task<Result<void>> watch_until_empty(int events_file);

  Loop& loop_;
  std::string name_;
  std::string path_;
  Handle folder_;
  Changed* waiting_ = nullptr;
  bool changed_ = false;
  bool killed_ = false;
};

// One change of cgroup.events; the level is read again after each.
class RealGroup::Changed final : public Waiter {
 public:
  explicit Changed(RealGroup& group) : group_(group) {}
  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_ || std::exchange(group_.changed_, false);
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    TUTTI_ASSERT(group_.waiting_ == nullptr, "one strand waits for a group to be empty");
    park(coroutine);
    group_.waiting_ = this;
  }
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }
  void finish() {
    group_.waiting_ = nullptr;
    group_.changed_ = false;
    wake();
  }

 private:
  void on_cancel() override {
    cancelled_ = true;
    finish();
  }
  RealGroup& group_;
  bool cancelled_ = false;
};

void RealGroup::on_ready(uint32_t) {
  changed_ = true;
  if (waiting_ != nullptr) waiting_->finish();
}

bool RealGroup::occupied() const {
  const Handle events = own_fd(openat(folder(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  return events.open() && populated(events.number());
}

RealGroup::~RealGroup() {
  TUTTI_ASSERT(waiting_ == nullptr, "a group outlives those who wait on it");
  if (occupied()) return;
  remove_subgroups(folder(), 0);
  for (int tries = 0; rmdir(path_.c_str()) != 0 && errno == EBUSY && tries < kRemoveTries; ++tries)
    std::this_thread::sleep_for(kRemovePause);
}

// Whether a member is left, here or in a group below. A group that is gone has none.
bool RealGroup::populated(int events_file) const {
  char text[256];
  const ssize_t got = pread(events_file, text, sizeof text, 0);
  if (got <= 0) return false;
  return std::string_view(text, static_cast<size_t>(got)).find("populated 1") !=
         std::string_view::npos;
}

// The folder of a group has one link from its parent, one of itself, and one from each below.
bool RealGroup::as_new() {
  constexpr nlink_t kLinksOfEmpty = 2;
  struct stat info{};
  return !killed_ && fstat(folder(), &info) == 0 && info.st_nlink == kLinksOfEmpty && !occupied();
}

Result<void> RealGroup::kill() {
  killed_ = true;
  auto killed = write_all(folder(), "cgroup.kill", "1");
  if (killed) return {};
  if (killed.error().code() != Code::not_found)
    return fail(killed.error().context(fmt::format("end process group {}", name_)));
  kill_one_by_one(folder());
  return {};
}

Result<std::vector<pid_t>> RealGroup::members() {
  std::vector<pid_t> found;
  add_members(folder(), 0, found);
  return found;
}

Task<Result<void>> RealGroup::emptied() {
  const Handle events = own_fd(openat(folder(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  if (!events.open()) {
    if (errno == ENOENT || errno == ENODEV) co_return {};  // the group is gone
    co_return fail_errno(errno, "watch process group {}", name_);
  }
  CO_TRY_DO(loop_.add(events.number(), EPOLLPRI, *this));
  auto empty = co_await watch_until_empty(events.number());
  loop_.remove(events.number(), *this);
  co_return empty;
}

Task<Result<void>> RealGroup::watch_until_empty(int events_file) {
  while (populated(events_file)) {
    Changed change(*this);
    CO_TRY_DO(co_await change);
  }
  co_return {};
}

void kill_one_by_one(int folder) {
  auto frozen = write_all(folder, "cgroup.freeze", "1");
  static_cast<void>(frozen);  // before 5.2 there is no freezer: rounds have to do
  for (int round = 0; round < kKillRounds; ++round) {
    std::vector<pid_t> pids;
    add_members(folder, 0, pids);
    if (pids.empty()) break;
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    std::this_thread::yield();
  }
  auto thawed = write_all(folder, "cgroup.freeze", "0");
  static_cast<void>(thawed);
}

bool maker_died(std::string_view folder) {
  const size_t at = folder.rfind('@');
  if (!folder.starts_with(kPrefix) || at == std::string_view::npos) return false;
  std::string_view maker = folder.substr(at + 1);
  const auto pid = number_of<pid_t>(take_until(maker, '.'));
  const auto start = number_of<uint64_t>(take_until(maker, '.'));
  if (pid <= 0 || start == 0 || number_of<uint64_t>(maker) != own_pid_namespace()) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const auto started = process_start(pid);
  return started && *started != start;
}

int group_folder(const ProcessGroup& group) {
  const auto* real = dynamic_cast<const RealGroup*>(&group);
  TUTTI_ASSERT(real != nullptr, "processes are started in groups of the same world");
  return real->folder();
}

std::vector<std::string> group_parents(std::string_view mounts, std::string_view own_groups) {
  const std::string_view own = own_cgroup(own_groups, "");
  std::vector<std::string> parents;
  for (const CgroupMount& mount : cgroup_mounts(mounts, ""))
    parents.push_back(mount.folder_of(own));
  return parents;
}

Result<void> Groups::find_parents() {
  if (!parents_.empty()) return {};
  TRY(const std::string mounts, read_kernel_file(AT_FDCWD, "/proc/self/mountinfo"));
  TRY(const std::string own, read_kernel_file(AT_FDCWD, "/proc/self/cgroup"));
  parents_ = group_parents(mounts, own);
  if (parents_.empty())
    return fail(Code::unsupported,
                "no cgroup2 is mounted; mount -t cgroup2 none /sys/fs/cgroup/unified");
  const std::string best = parents_.front();
  std::erase_if(parents_, [](const std::string& parent) { return !may_write(parent); });
  if (parents_.empty())
    return fail(Code::unsupported, "{} is not writable for this user; delegate a cgroup to it",
                best);
  return {};
}

namespace {

Result<void> check_name(const std::string& name) {
  if (!name.empty() && name.size() <= kMostNameBytes &&
      name.find_first_of(std::string_view("/\n\0", 3)) == std::string::npos)
    return {};
  return fail(Code::invalid, "\"{}\" cannot name a process group; use 1 to {} bytes without /",
              name, kMostNameBytes);
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> Groups::open(std::string name) {
  TRY_DO(check_name(name));
  TRY_DO(find_parents());
  const std::string start = fmt::format("{}{}@", kPrefix, name);
  for (const std::string& parent : parents_) {
    std::string path;
    for_each_subgroup(AT_FDCWD, parent.c_str(), [&](std::string_view entry) {
      if (entry.starts_with(start)) path = fmt::format("{}/{}", parent, entry);
    });
    if (path.empty()) continue;
    Handle folder = own_fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.open())
      return std::make_unique<RealGroup>(loop_, std::move(name), std::move(path),
                                         std::move(folder));
    if (errno != ENOENT) return fail_errno(errno, "open process group {}", path);
  }
  return fail(Code::not_found, "there is no process group {}", name);
}

Result<std::unique_ptr<ProcessGroup>> Groups::create(std::string name) {
  TRY_DO(check_name(name));
  if (open(name)) return fail(Code::exists, "process group {} is there already", name);
  TRY_DO(find_parents());
  TRY(const uint64_t start, process_start(getpid()));
  int error = 0;
  for (const std::string& parent : parents_) {
    std::string path = fmt::format("{}/{}{}@{}.{}.{}", parent, kPrefix, name, getpid(), start,
                                   own_pid_namespace());
    if (mkdir(path.c_str(), 0755) != 0) {
      error = errno;
      continue;
    }
    Handle folder = own_fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.open())
      return std::make_unique<RealGroup>(loop_, std::move(name), std::move(path),
                                         std::move(folder));
    error = errno;
    rmdir(path.c_str());
  }
  if (error == EACCES || error == EPERM || error == EROFS)
    return fail(Code::unsupported, "{} is not writable for this user; delegate a cgroup to it",
                parents_.front());
  return fail_errno(error, "make process group {} in {}", name, parents_.front());
}

size_t Groups::sweep() {
  if (!find_parents()) return 0;
  std::vector<std::string> left_behind;
  for (const std::string& parent : parents_)
    for_each_subgroup(AT_FDCWD, parent.c_str(), [&](std::string_view entry) {
      if (maker_died(entry)) left_behind.push_back(fmt::format("{}/{}", parent, entry));
    });
  return static_cast<size_t>(
      std::ranges::count_if(left_behind, [&](const std::string& path) { return sweep_one(path); }));
}

bool Groups::sweep_one(const std::string& path) {
  Handle folder = own_fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return false;
  RealGroup group(loop_, path, path, std::move(folder));
  if (!group.kill()) return false;
  for (int tries = 0; group.occupied() && tries < kSweepTries; ++tries)
    std::this_thread::sleep_for(kRemovePause);
  return !group.occupied();  // and removed as it goes out of scope
}

}  // namespace tutti
