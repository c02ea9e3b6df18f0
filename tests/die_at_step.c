// Preloaded into a program of tutti, kills it at one of its steps: a call that others can see, such
// as a message sent or a record written. How many steps are left is in a file that the test maps
// too: 0 is never. So the same launch can be broken off at its first step, its second, and so on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { kSmallestMessage = 64 };  // signs of life are smaller, and come at any time

static _Atomic long* steps_left;
static pid_t own_pid;

static long raw_syscall(long number) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
  return result;
}

static void step(void) {
  // A child that shares our memory until it executes something is not us.
  if (steps_left == NULL || atomic_load(steps_left) <= 0) return;
  if (raw_syscall(SYS_getpid) != own_pid) return;
  if (atomic_fetch_sub(steps_left, 1) == 1) {
    kill(own_pid, SIGKILL);
    for (;;) pause();
  }
}

static int is_program(const char* wanted) {
  char line[256] = {0};
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, line, sizeof line - 1);
  close(file);
  const size_t first = strlen(line) + 1;
  return size > (ssize_t)first && strcmp(line + first, wanted) == 0;
}

// With io_uring, records would be written by calls that nobody can stand in front of.
static void forbid_io_uring(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof code[0], code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) abort();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) abort();
}

__attribute__((constructor)) static void begin(void) {
  const char* program = getenv("DIE_PROGRAM");
  const char* path = getenv("DIE_STEPS");
  if (program == NULL || path == NULL || !is_program(program)) return;
  unsetenv("LD_PRELOAD");  // of those it starts, none
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* page = mmap(NULL, sizeof *steps_left, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) abort();
  forbid_io_uring();
  own_pid = getpid();
  steps_left = page;
}

#define THE_REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t send(int fd, const void* data, size_t size, int flags) {
  if (size >= kSmallestMessage) step();
  return THE_REAL(send)(fd, data, size, flags);
}
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  step();
  return THE_REAL(sendmsg)(fd, message, flags);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  step();
  return THE_REAL(pwrite)(fd, data, size, offset);
}
int fsync(int fd) {
  step();
  return THE_REAL(fsync)(fd);
}
int socketpair(int domain, int type, int protocol, int fds[2]) {
  step();
  return THE_REAL(socketpair)(domain, type, protocol, fds);
}
int mkdir(const char* path, mode_t mode) {
  step();
  return THE_REAL(mkdir)(path, mode);
}
// Before and after each process that is started.
long syscall(long number, ...) {
  static long (*real)(long, ...);
  va_list list;
  va_start(list, number);
  long words[6];
  for (int i = 0; i < 6; ++i) words[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_rt_sigprocmask) step();
  if (real == NULL) real = THE_REAL(syscall);
  return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
