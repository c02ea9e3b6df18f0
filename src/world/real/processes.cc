#include "world/real/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "world/real/cgroup_paths.h"
#include "world/real/fd.h"
#include "world/real/terminal.h"
#include "world/real/usage.h"

namespace tutti {

namespace {

Duration duration_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

Exit exit_of(const siginfo_t& info, const rusage& usage) {
  Exit exit;
  if (info.si_code == CLD_EXITED) {
    exit.code = info.si_status;
  } else {
    exit.signal = info.si_status;
    exit.core_dumped = info.si_code == CLD_DUMPED;
  }
  exit.user_time = duration_of(usage.ru_utime);
  exit.system_time = duration_of(usage.ru_stime);
  exit.peak_memory_bytes = static_cast<uint64_t>(usage.ru_maxrss) << 10;  // the kernel says KiB
  return exit;
}

// So few are started by one before another has begun.
constexpr size_t kWorthTwo = 4;

struct Reaped {
  pid_t pid = 0;  // 0: none has ended
  int error = 0;
  Exit exit;
};

// glibc's waitid has no place for the usage that the system call gives.
Reaped reap(int kind, int id, int flags = 0) {
  siginfo_t info{};
  rusage usage{};
  long done = 0;
  do {
    done = syscall(SYS_waitid, kind, id, &info, WEXITED | WNOHANG | flags, &usage);
  } while (done != 0 && errno == EINTR);
  if (done != 0) return {.error = errno};
  if (info.si_pid == 0) return {};
  return {.pid = info.si_pid, .exit = exit_of(info, usage)};
}

}  // namespace

class RealProcess final : public Process, private Watch {
 public:
  explicit RealProcess(RealProcesses& owner) : owner_(owner) {}
  // On the thread that started it: from then on, so that the kernel tells of the ends of many in
  // the order they came.
  void begin(Spawned spawned) {
    pid_ = spawned.pid;
    pidfd_ = std::move(spawned.pidfd);
    watched_ = owner_.loop_.add(pidfd_.number(), EPOLLIN, *this);
  }
  // On the loop's thread, before that looks at the kernel's reports again.
  void join_family() { owner_.children_.emplace(pid_, this); }
  ~RealProcess() override {
    TUTTI_ASSERT(waiting_ == nullptr, "a process object outlives those who wait on it");
    if (pid_ == 0) return;  // it was never begun
    if (!outcome_) collect();
    stop_watching();
    if (!outcome_) owner_.children_.erase(pid_);  // from now on an orphan like any other
  }

  pid_t pid() const override { return pid_; }
  Task<Result<Exit>> wait() override;
  bool failing() override;
  Result<void> signal(int number) override;
  Result<void> signal_family(int number) override;

 private:
  class Ended;
  void on_ready(uint32_t) override { collect(); }
  bool has_ended();
  Result<void> told(long sent, int number) const;
  void collect();
  void ended(Result<Exit> outcome);
  void stop_watching();

  RealProcesses& owner_;
  pid_t pid_ = 0;
  Handle pidfd_;
  Result<void> watched_;
  std::optional<Result<Exit>> outcome_;
  Ended* waiting_ = nullptr;
};

class RealProcess::Ended final : public Waiter {
 public:
  explicit Ended(RealProcess& process) : process_(process) {}
  bool await_ready() {
    if (cancelled_already()) result_ = fail(cancelled_error());
    return !result_;
  }
  bool await_suspend(std::coroutine_handle<> coroutine) {
    TUTTI_ASSERT(process_.waiting_ == nullptr, "one strand waits for a process");
    result_ = process_.watched_;
    if (!result_) return false;
    park(coroutine);
    process_.waiting_ = this;
    return true;
  }
  Result<void> await_resume() { return std::move(result_); }

  void finish() {
    process_.waiting_ = nullptr;
    wake();
  }

 private:
  void on_cancel() override {
    result_ = fail(cancelled_error());
    finish();
  }
  RealProcess& process_;
  Result<void> result_;
};

Task<Result<Exit>> RealProcess::wait() {
  if (!outcome_) {
    Ended end(*this);
    CO_TRY_DO(co_await end);
  }
  co_return *outcome_;
}

// The last field of its stat is how it ends, as soon as that is decided; of a stopped one it is the
// signal that stopped it.
bool RealProcess::failing() {
  if (outcome_) return false;
  auto text = read_kernel_file(AT_FDCWD, fmt::format("/proc/{}/stat", pid_).c_str());
  if (!text) return false;
  const size_t name_end = text->rfind(')');
  const size_t last = text->find_last_of(' ');
  if (name_end == std::string::npos || name_end + 2 >= last) return false;
  const char state = (*text)[name_end + 2];
  return state != 'T' && state != 't' && std::string_view(*text).substr(last + 1, 1) != "0";
}

Result<void> RealProcess::signal(int number) {
  if (has_ended()) return fail(Code::not_found, "process {} has ended", pid_);
  return told(syscall(SYS_pidfd_send_signal, pidfd_.number(), number, nullptr, 0), number);
}

// Its number is nobody else's, as a process or as a family, until we collect its exit status.
Result<void> RealProcess::signal_family(int number) {
  if (has_ended()) return fail(Code::not_found, "process {} has ended", pid_);
  return told(kill(-pid_, number), number);
}

// The kernel would let us signal a process that is only not collected yet.
bool RealProcess::has_ended() {
  if (!outcome_) collect();
  return outcome_.has_value();
}

Result<void> RealProcess::told(long sent, int number) const {
  if (sent == 0) return {};
  if (errno == ESRCH) return fail(Code::not_found, "process {} has ended", pid_);
  return fail_errno(errno, "send signal {} to process {}", number, pid_);
}

void RealProcess::collect() {
  Reaped reaped = reap(P_PIDFD, pidfd_.number());
  if (reaped.pid != 0) return ended(reaped.exit);
  if (reaped.error != 0)
    ended(
        fail(Code::internal, "the exit status of process {} was collected by somebody else", pid_));
}

void RealProcess::stop_watching() {
  if (watched_) owner_.loop_.remove(pidfd_.number(), *this);
  watched_ = fail(Code::not_found, "process {} has ended", pid_);
}

void RealProcess::ended(Result<Exit> outcome) {
  stop_watching();
  outcome_ = std::move(outcome);
  owner_.children_.erase(pid_);
  if (waiting_ != nullptr) waiting_->finish();
}

RealProcesses::RealProcesses(Loop& loop, Spawner::Way way)
    : loop_(loop), way_(way), spawner_(way), groups_(loop) {
  // Whoever started us may have left SIGCHLD ignored; then the kernel would keep no exit status.
  struct sigaction current{};
  if (sigaction(SIGCHLD, nullptr, &current) == 0 && current.sa_handler == SIG_IGN)
    std::signal(SIGCHLD, SIG_DFL);
}

RealProcesses::~RealProcesses() {
  TUTTI_ASSERT(children_.empty(), "process objects die before their world");
}

Result<void> RealProcesses::begin(RealProcess& process, Spawner& spawner,
                                  const SpawnOptions& options) {
  const int group = options.group == nullptr ? -1 : group_folder(*options.group);
  TRY(Spawned spawned, spawner.spawn(options, group));
  process.begin(std::move(spawned));
  return {};
}

Result<std::unique_ptr<Process>> RealProcesses::spawn(const SpawnOptions& options) {
  auto process = std::make_unique<RealProcess>(*this);
  TRY_DO(begin(*process, spawner_, options));
  process->join_family();
  return process;
}

// Whoever starts a process waits until that has executed its program, and behind those that run
// already. Two who take turns keep both cores busy: a fifth more in a second, where a third gains
// nothing.
Processes::Spawns RealProcesses::spawn_all(std::span<const SpawnOptions* const> all) {
  if (all.size() < kWorthTwo || std::thread::hardware_concurrency() < 2)
    return Processes::spawn_all(all);
  if (second_ == nullptr) second_ = std::make_unique<Second>(way_);
  std::vector<std::unique_ptr<RealProcess>> made;
  for (size_t i = 0; i < all.size(); ++i) made.push_back(std::make_unique<RealProcess>(*this));
  std::vector<Result<void>> begun(all.size(), fail(cancelled_error()));
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&](Spawner& spawner) {
    for (size_t i = next++; i < all.size() && !failed; i = next++) {
      begun[i] = begin(*made[i], spawner, *all[i]);
      if (!begun[i]) failed = true;
    }
  };
  second_->thread.start([&] { work(second_->spawner); });
  work(spawner_);
  second_->thread.wait();
  Spawns spawns;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!begun[i]) {
      spawns.emplace_back(fail(std::move(begun[i]).error()));
      continue;
    }
    made[i]->join_family();
    spawns.emplace_back(std::move(made[i]));
  }
  return spawns;
}

Result<Processes::Pipe> RealProcesses::pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  Pipe pipe{own_fd(ends[0]), own_fd(ends[1])};
  // The child's end blocks, as programs expect; ours never does, so adopt() need not open it anew.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "make a pipe");
  return pipe;
}

Result<Processes::Terminal> RealProcesses::terminal(unsigned columns, unsigned rows) {
  return open_terminal(columns, rows);
}

Result<void> RealProcesses::become_subreaper() {
  TRY_DO(tree_.open());
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0) return {};
  return fail_errno(errno, "become the parent of orphans");
}

Result<std::vector<pid_t>> RealProcesses::descendants(std::span<const pid_t> spare) {
  if (childless()) return std::vector<pid_t>();  // all of /proc need not be read
  return tree_.descendants_of(getpid(), spare);
}

bool RealProcesses::childless() { return reap(P_ALL, 0, WNOWAIT).error == ECHILD; }

Result<void> RealProcesses::signal(pid_t pid, int number) {
  if (pid <= 0) return fail(Code::invalid, "{} is not a process", pid);
  if (kill(pid, number) == 0) return {};
  if (errno == ESRCH) return fail(Code::not_found, "process {} has ended", pid);
  return fail_errno(errno, "send signal {} to process {}", number, pid);
}

bool RealProcesses::family_lives(pid_t leader) { return kill(-leader, 0) == 0 || errno == EPERM; }

std::map<pid_t, Usage> RealProcesses::usage_of(std::span<const pid_t> leaders) {
  return read_usage(leaders);
}

// The kernel gives ended children in the order of their birth. One of ours among them is left to
// its RealProcess, which the loop tells of ends in the order they came; the rest waits until then.
size_t RealProcesses::reap_orphans() {
  for (size_t count = 0;; ++count) {
    const pid_t ended = reap(P_ALL, 0, WNOWAIT).pid;
    if (ended == 0 || children_.contains(ended)) return count;
    reap(P_PID, ended);
  }
}

Result<std::unique_ptr<ProcessGroup>> RealProcesses::create_group(std::string name) {
  return groups_.create(std::move(name));
}
Result<std::unique_ptr<ProcessGroup>> RealProcesses::open_group(std::string name) {
  return groups_.open(std::move(name));
}

pid_t RealProcesses::own_pid() const { return getpid(); }

std::string RealProcesses::name_of(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/comm", pid);
  const Handle file = own_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[64];  // the kernel keeps 15 bytes and ends them with a line feed
  const ssize_t got = file.open() ? read(file.number(), text, sizeof text) : -1;
  return got > 0 ? std::string(text, static_cast<size_t>(got) - 1) : "";
}

// "12 (a name) D 1 …": the name may hold anything, also brackets.
char RealProcesses::state_of(pid_t pid) {
  auto text = read_kernel_file(AT_FDCWD, fmt::format("/proc/{}/stat", pid).c_str());
  const size_t name_end = text ? text->rfind(')') : std::string::npos;
  return name_end == std::string::npos || name_end + 2 >= text->size() ? 0 : (*text)[name_end + 2];
}

uid_t RealProcesses::own_uid() const { return geteuid(); }

}  // namespace tutti
