#include "world/real/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "world/real/fd.h"
#include "world/real/process_tree.h"
#include "world/real/terminal.h"

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

struct Reaped {
  pid_t pid = 0;  // 0: none has ended
  int error = 0;
  Exit exit;
};

// glibc's waitid has no place for the usage that the system call gives.
Reaped reap(int kind, int id) {
  siginfo_t info{};
  rusage usage{};
  long done = 0;
  do {
    done = syscall(SYS_waitid, kind, id, &info, WEXITED | WNOHANG, &usage);
  } while (done != 0 && errno == EINTR);
  if (done != 0) return {.error = errno};
  if (info.si_pid == 0) return {};
  return {.pid = info.si_pid, .exit = exit_of(info, usage)};
}

}  // namespace

class RealProcess final : public Process, private Watch {
 public:
  RealProcess(RealProcesses& owner, Spawned spawned)
      : owner_(owner), pid_(spawned.pid), pidfd_(std::move(spawned.pidfd)) {
    owner_.children_.emplace(pid_, this);
    // From the start, so that the kernel tells of the ends of many in the order they came.
    watched_ = owner_.loop_.add(pidfd_.number(), EPOLLIN, *this);
  }
  ~RealProcess() override {
    TUTTI_ASSERT(waiting_ == nullptr, "a process object outlives those who wait on it");
    if (!outcome_) collect();
    stop_watching();
    if (!outcome_) owner_.children_.erase(pid_);  // from now on an orphan like any other
  }

  pid_t pid() const override { return pid_; }
  Task<Result<Exit>> wait() override;
  Result<void> signal(int number) override;

  // The exit status has been collected, here or by RealProcesses::reap_orphans.
  void ended(Result<Exit> outcome);

 private:
  class Ended;
  void on_ready(uint32_t) override { collect(); }
  void collect();
  void stop_watching();

  RealProcesses& owner_;
  pid_t pid_;
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

Result<void> RealProcess::signal(int number) {
  if (!outcome_) collect();  // the kernel would let us signal a process that is only not reaped
  if (outcome_) return fail(Code::not_found, "process {} has ended", pid_);
  if (syscall(SYS_pidfd_send_signal, pidfd_.number(), number, nullptr, 0) == 0) return {};
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
    : loop_(loop), spawner_(way), groups_(loop) {
  // Whoever started us may have left SIGCHLD ignored; then the kernel would keep no exit status.
  struct sigaction current{};
  if (sigaction(SIGCHLD, nullptr, &current) == 0 && current.sa_handler == SIG_IGN)
    std::signal(SIGCHLD, SIG_DFL);
}

RealProcesses::~RealProcesses() {
  TUTTI_ASSERT(children_.empty(), "process objects die before their world");
}

Result<std::unique_ptr<Process>> RealProcesses::spawn(const SpawnOptions& options) {
  const int group = options.group == nullptr ? -1 : group_folder(*options.group);
  TRY(Spawned spawned, spawner_.spawn(options, group));
  return std::make_unique<RealProcess>(*this, std::move(spawned));
}

Result<Processes::Pipe> RealProcesses::pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "make a pipe");
  return Pipe{own_fd(ends[0]), own_fd(ends[1])};
}

Result<Processes::Terminal> RealProcesses::terminal(unsigned columns, unsigned rows) {
  return open_terminal(columns, rows);
}

Result<void> RealProcesses::become_subreaper() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0) return {};
  return fail_errno(errno, "become the parent of orphans");
}

Result<std::vector<pid_t>> RealProcesses::descendants() {
  // Whoever has no child, not even one that ended, has no descendants: all of /proc need not be
  // read.
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
    return std::vector<pid_t>();
  return descendants_of(getpid());
}

Result<void> RealProcesses::signal(pid_t pid, int number) {
  if (pid <= 0) return fail(Code::invalid, "{} is not a process", pid);
  if (kill(pid, number) == 0) return {};
  if (errno == ESRCH) return fail(Code::not_found, "process {} has ended", pid);
  return fail_errno(errno, "send signal {} to process {}", number, pid);
}

size_t RealProcesses::reap_orphans() {
  size_t count = 0;
  for (;;) {
    const Reaped reaped = reap(P_ALL, 0);
    if (reaped.pid == 0) return count;
    const auto child = children_.find(reaped.pid);
    if (child != children_.end()) {
      child->second->ended(reaped.exit);
    } else {
      ++count;
    }
  }
}

Result<std::unique_ptr<ProcessGroup>> RealProcesses::create_group(std::string name) {
  return groups_.create(std::move(name));
}
Result<std::unique_ptr<ProcessGroup>> RealProcesses::open_group(std::string name) {
  return groups_.open(std::move(name));
}

pid_t RealProcesses::own_pid() const { return getpid(); }
uid_t RealProcesses::own_uid() const { return geteuid(); }

}  // namespace tutti
