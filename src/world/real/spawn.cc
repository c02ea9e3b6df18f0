#include "world/real/spawn.h"

#include <grp.h>
#include <linux/sched.h>
#include <pwd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "world/real/errors.h"
#include "world/real/fd.h"
#include "world/real/program.h"
#include "world/real/spawn_child.h"

namespace tutti {

namespace {

// Enough for system calls and the signal frames that cannot come, since all are blocked.
constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kGuardBytes = 4 << 10;
constexpr int kMostGroups = 1024;           // supplementary groups of one user
constexpr int kMostNumber = 1023;           // of an inherited descriptor: always within the limits
constexpr size_t kAccountBytes = 16 << 10;  // of one line of the user database

constexpr uint64_t kCloneFlags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;

// What the plan points to.
struct PlanMemory {
  std::string path;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  std::vector<SpawnPlan::Move> moves;
  std::vector<gid_t> groups;
};

// A handler that ran in the child would run in our memory. glibc leaves out two signals of its own.
class BlockAllSignals {
 public:
  BlockAllSignals() {
    const uint64_t all = ~0ULL;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof all);
  }
  ~BlockAllSignals() {
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_);
  }

 private:
  uint64_t before_ = 0;
};

Result<std::vector<char*>> as_array(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    if (text.find('\0') != std::string::npos)
      return fail(Code::invalid, "argument or variable \"{}\" contains a zero byte", text.c_str());
    pointers.push_back(const_cast<char*>(text.c_str()));  // execve's signature; it only reads
  }
  pointers.push_back(nullptr);
  return pointers;
}

Result<void> plan_descriptors(const SpawnOptions& options, SpawnPlan& plan, PlanMemory& memory) {
  for (const SpawnOptions::Inherit& inherit : options.inherit) {
    TUTTI_ASSERT(inherit.handle != nullptr && inherit.handle->open(), "inherited handles are open");
    if (inherit.number < 0 || inherit.number > kMostNumber)
      return fail(Code::invalid, "a child cannot have descriptor {}; use 0 to {}", inherit.number,
                  kMostNumber);
    for (const SpawnPlan::Move& move : memory.moves)
      if (move.to == inherit.number)
        return fail(Code::invalid, "two handles are given as descriptor {}", inherit.number);
    memory.moves.push_back({inherit.handle->number(), inherit.number});
    if (inherit.number < 3) plan.standard_given[inherit.number] = true;
    plan.beyond_moves = std::max(plan.beyond_moves, inherit.number + 1);
  }
  plan.moves = memory.moves.data();
  plan.move_count = memory.moves.size();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kMostScanned = 1 << 20;
  plan.descriptor_limit = static_cast<int>(std::min(limit.rlim_cur, kMostScanned));
  plan.open_files[0] = std::min<uint64_t>(options.open_files, limit.rlim_max);
  plan.open_files[1] = limit.rlim_max;
  return {};
}

// A user brings all their groups along: those of devices, for instance.
Result<void> look_up_groups(uid_t user, SpawnPlan& plan, PlanMemory& memory, bool group_given) {
  passwd account{};
  passwd* found = nullptr;
  std::vector<char> text(kAccountBytes);
  const int error = getpwuid_r(user, &account, text.data(), text.size(), &found);
  if (found == nullptr) {
    if (group_given) return {};
    if (error != 0) return fail_errno(error, "look up user {}", user);
    return fail(Code::not_found, "user {} is not in the user database; give its group as well",
                user);
  }
  if (!group_given) plan.user_group = account.pw_gid;
  int count = kMostGroups;
  memory.groups.resize(kMostGroups);
  if (getgrouplist(account.pw_name, plan.user_group, memory.groups.data(), &count) < 0)
    return fail(Code::exhausted, "user {} is in more than {} groups", user, kMostGroups);
  memory.groups.resize(static_cast<size_t>(count));
  return {};
}

Result<void> plan_user(const SpawnOptions& options, SpawnPlan& plan, PlanMemory& memory) {
  plan.user = options.user.value_or(geteuid());
  plan.user_group = options.user_group.value_or(getegid());
  const bool same_user = plan.user == geteuid();
  if (same_user && plan.user_group == getegid()) return {};
  plan.change_user = true;
  if (!same_user) TRY_DO(look_up_groups(plan.user, plan, memory, options.user_group.has_value()));
  plan.groups = memory.groups.data();
  plan.group_count = memory.groups.size();
  return {};
}

Result<void> make_plan(const SpawnOptions& options, SpawnPlan& plan, PlanMemory& memory) {
  if (options.arguments.empty()) return fail(Code::invalid, "no command given");
  if (options.controlling_terminal && !options.new_session)
    return fail(Code::invalid, "only a new session can take a controlling terminal");
  TRY(memory.path, find_program(options.program.empty() ? options.arguments[0] : options.program,
                                options.environment, options.folder));
  TRY(memory.arguments, as_array(options.arguments));
  TRY(memory.environment, as_array(options.environment));
  TRY_DO(plan_descriptors(options, plan, memory));
  TRY_DO(plan_user(options, plan, memory));
  plan.path = memory.path.c_str();
  plan.arguments = memory.arguments.data();
  plan.environment = memory.environment.data();
  plan.folder = options.folder.empty() ? nullptr : options.folder.c_str();
  plan.new_session = options.new_session;
  plan.controlling_terminal = options.controlling_terminal;
  plan.nice = options.nice;
  plan.parent_death_signal = options.parent_death_signal;
  plan.parent = getpid();
  return {};
}

#if defined(__x86_64__)
// The child must not return through the caller's frame, which it shares: it starts on its own
// stack, calls spawn_child and never comes back. glibc has no function that does this for clone3.
pid_t clone_best(std::byte* stack, int group, SpawnPlan& plan, int& pidfd) {
  clone_args args{};
  args.flags = kCloneFlags | (group >= 0 ? CLONE_INTO_CGROUP : 0);
  args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  args.stack = reinterpret_cast<uint64_t>(stack);
  args.stack_size = kStackBytes;
  if (group >= 0) args.cgroup = static_cast<uint64_t>(group);
  long result = SYS_clone3;
  register void (*entry)(SpawnPlan&) asm("r12") = &spawn_child;
  register SpawnPlan* child_plan asm("r13") = &plan;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %[plan], %%rdi\n\t"
      "call *%[entry]\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(&args), "S"(sizeof args), [entry] "r"(entry), [plan] "r"(child_plan)
      : "rcx", "r11", "memory", "cc");
  if (result >= 0) return static_cast<pid_t>(result);
  errno = static_cast<int>(-result);
  return -1;
}
#else
pid_t clone_best(std::byte*, int, SpawnPlan&, int&) {
  errno = ENOSYS;
  return -1;
}
#endif

TUTTI_UNINSTRUMENTED int portable_entry(void* plan) { spawn_child(*static_cast<SpawnPlan*>(plan)); }

pid_t clone_portable(std::byte* stack, int group, SpawnPlan& plan, int& pidfd) {
  plan.join_group = group;
#if defined(__SANITIZE_THREAD__)
  // libtsan's clone takes every clone for a fork and marks the memory we share as the child's.
  return clone_best(stack, -1, plan, pidfd);
#endif
  return ::clone(&portable_entry, stack + kStackBytes, static_cast<int>(kCloneFlags) | SIGCHLD,
                 &plan, &pidfd);
}

// Kernels before 5.3 have no clone3, before 5.7 none that knows groups; some sandboxes forbid it.
bool clone3_is_missing(int error) {
  return error == ENOSYS || error == E2BIG || error == EINVAL || error == EPERM;
}

// Whoever can do without the group may try again.
Error group_refuses(int error) {
  const Error plain = Error::from_errno(error, "the process group takes no process");
  return {Code::unsupported, plain.message()};
}

Error explain_clone(int error, int group) {
  switch (error) {
    case EAGAIN:
      return {Code::exhausted,
              "no more processes are allowed; see `ulimit -u` and pids.max of this cgroup"};
    case ENODEV:
      if (group >= 0) return {Code::not_found, "the process group has been removed"};
      break;
    case EACCES:
    case EBUSY:
    case EOPNOTSUPP:
      if (group >= 0) return group_refuses(error);
      break;
    default: break;
  }
  return Error::from_errno(error, "start a process");
}

Error explain_step(const SpawnPlan& plan, const SpawnOptions& options) {
  switch (plan.failed) {
    case SpawnStep::group: return group_refuses(plan.error);
    case SpawnStep::session: return Error::from_errno(plan.error, "begin a session");
    case SpawnStep::descriptors:
      return Error::from_errno(plan.error, "give descriptors to the child");
    case SpawnStep::terminal:
      return Error::from_errno(plan.error, "take descriptor 0 as the controlling terminal");
    case SpawnStep::nice:
      return Error::from_errno(plan.error, fmt::format("change nice by {}", plan.nice));
    case SpawnStep::user:
      return errno_with_advice(
          plan.error, fmt::format("become user {} of group {}", plan.user, plan.user_group),
          "only root may");
    case SpawnStep::folder:
      return Error::from_errno(plan.error, fmt::format("folder {}", options.folder));
    case SpawnStep::parent: return Error::from_errno(plan.error, "follow the parent's death");
    default: return explain_exec(plan.error, plan.path, options.folder);
  }
}

}  // namespace

Spawner::~Spawner() {
  if (stack_ != nullptr) munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

Result<void> Spawner::make_stack() {
  if (stack_ != nullptr) return {};
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "make a stack for a child");
  mprotect(memory, kGuardBytes, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
  return {};
}

Result<Spawned> Spawner::spawn(const SpawnOptions& options, int group) {
  SpawnPlan plan;
  PlanMemory memory;
  TRY_DO(make_plan(options, plan, memory));
  TRY_DO(make_stack());
  int pidfd = -1;
  pid_t pid = -1;
  {
    const BlockAllSignals blocked;
    if (way_ == Way::best) pid = clone_best(stack_, group, plan, pidfd);
    if (way_ == Way::portable || (pid < 0 && clone3_is_missing(errno)))
      pid = clone_portable(stack_, group, plan, pidfd);
  }
  if (pid < 0) return fail(explain_clone(errno, group));
  Handle owned = own_fd(pidfd);
  if (plan.failed == SpawnStep::none) return Spawned{pid, std::move(owned)};
  siginfo_t info{};
  while (waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info, WEXITED) != 0 &&
         errno == EINTR) {
  }
  return fail(explain_step(plan, options));
}

}  // namespace tutti
