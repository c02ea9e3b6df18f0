#include "world/real/spawn_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

namespace tutti {

namespace {

constexpr int kSignals = 64;
constexpr int kExitUnstarted = 127;  // what shells return for a command they could not start

// The kernel's idea of struct sigaction; glibc's wrapper refuses signals it keeps for itself.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  uint64_t mask;
};

// Ignored signals would stay ignored across exec, so that a program started from a shell's
// background would never hear Ctrl-C.
TUTTI_UNINSTRUMENTED void default_all_signals() {
  KernelSigaction action;
  action.handler = nullptr;
  action.flags = 0;
  action.restorer = nullptr;
  action.mask = 0;
  for (int number = 1; number <= kSignals; ++number)
    syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof action.mask);
}

TUTTI_UNINSTRUMENTED void unblock_all_signals() {
  const uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
}

TUTTI_UNINSTRUMENTED bool enter_group(int folder) {
  const long file = syscall(SYS_openat, folder, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  return syscall(SYS_write, file, "0", 1) == 1;
}

TUTTI_UNINSTRUMENTED void close_others_on_exec(const SpawnPlan& plan) {
  if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = 3; fd < plan.descriptor_limit; ++fd) syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
}

// First everything out of the way of every target, then to its place: so no order of moves can
// overwrite a descriptor that is still to be moved.
TUTTI_UNINSTRUMENTED bool move_descriptors(SpawnPlan& plan) {
  for (size_t i = 0; i < plan.move_count; ++i) {
    if (plan.moves[i].from >= plan.beyond_moves) continue;
    const long moved = syscall(SYS_fcntl, plan.moves[i].from, F_DUPFD_CLOEXEC, plan.beyond_moves);
    if (moved < 0) return false;
    plan.moves[i].from = static_cast<int>(moved);
  }
  for (size_t i = 0; i < plan.move_count; ++i)
    if (syscall(SYS_dup3, plan.moves[i].from, plan.moves[i].to, 0) < 0) return false;
  for (int number = 0; number < 3; ++number) {
    if (plan.standard_given[number]) continue;
    const long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return false;
    if (null == number) {
      syscall(SYS_fcntl, null, F_SETFD, 0);
    } else if (syscall(SYS_dup3, null, number, 0) < 0) {
      return false;
    }
  }
  return true;
}

TUTTI_UNINSTRUMENTED bool be_nice(int by) {
  const long kernel_priority = syscall(SYS_getpriority, PRIO_PROCESS, 0);  // 20 - nice: 1 to 40
  if (kernel_priority < 0) return false;
  return syscall(SYS_setpriority, PRIO_PROCESS, 0, 20 - kernel_priority + by) == 0;
}

// Programs open /dev/stdout anew, and may only if the pipe behind it is their user's.
TUTTI_UNINSTRUMENTED void give_pipes(const SpawnPlan& plan) {
  for (int number = 0; number < 3; ++number) {
    struct stat info;
    if (!plan.standard_given[number] || syscall(SYS_fstat, number, &info) != 0) continue;
    if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))
      syscall(SYS_fchown, number, plan.user, plan.user_group);
  }
}

TUTTI_UNINSTRUMENTED bool change_user(const SpawnPlan& plan) {
  give_pipes(plan);
  return syscall(SYS_setgroups, plan.group_count, plan.groups) == 0 &&
         syscall(SYS_setresgid, plan.user_group, plan.user_group, plan.user_group) == 0 &&
         syscall(SYS_setresuid, plan.user, plan.user, plan.user) == 0;
}

// The signal comes only for a parent that dies from now on: one that died before is noticed by
// its number, which is no longer ours to see. After change_user, which would clear it.
TUTTI_UNINSTRUMENTED bool follow_parent(const SpawnPlan& plan) {
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, plan.parent_death_signal, 0, 0, 0) != 0) return false;
  if (syscall(SYS_getppid) == plan.parent) return true;
  errno = ESRCH;
  return false;
}

TUTTI_UNINSTRUMENTED SpawnStep prepare(SpawnPlan& plan) {
  default_all_signals();
  if (plan.join_group >= 0 && !enter_group(plan.join_group)) return SpawnStep::group;
  if (plan.new_session && syscall(SYS_setsid) < 0) return SpawnStep::session;
  close_others_on_exec(plan);
  if (!move_descriptors(plan)) return SpawnStep::descriptors;
  if (plan.controlling_terminal && syscall(SYS_ioctl, 0, TIOCSCTTY, 0) != 0)
    return SpawnStep::terminal;
  if (plan.nice != 0 && !be_nice(plan.nice)) return SpawnStep::nice;
  if (plan.change_user && !change_user(plan)) return SpawnStep::user;
  if (plan.open_files[0] != 0)  // last of what needs descriptors
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, plan.open_files, nullptr);
  if (plan.folder != nullptr && syscall(SYS_chdir, plan.folder) != 0) return SpawnStep::folder;
  if (plan.parent_death_signal != 0 && !follow_parent(plan)) return SpawnStep::parent;
  unblock_all_signals();
  syscall(SYS_execve, plan.path, plan.arguments, plan.environment);
  return SpawnStep::exec;
}

}  // namespace

TUTTI_UNINSTRUMENTED void spawn_child(SpawnPlan& plan) {
  const SpawnStep failed = prepare(plan);
  plan.error = errno;
  plan.failed = failed;
  for (;;) syscall(SYS_exit_group, kExitUnstarted);
}

}  // namespace tutti
