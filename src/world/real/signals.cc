#include "world/real/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/fd.h"

namespace tutti {

namespace {

bool ignored(int number) {
  struct sigaction current{};
  return sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
}

}  // namespace

Result<std::unique_ptr<Signals>> Signals::create(Loop& loop, std::span<const int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : numbers)
    if (!ignored(number)) sigaddset(&set, number);
  Handle fd = own_fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd.open()) return fail_errno(errno, "wait for signals");
  std::unique_ptr<Signals> signals(new Signals(loop));
  TRY_DO(loop.add(fd.number(), EPOLLIN, signals->readiness_));
  signals->fd_ = std::move(fd);
  pthread_sigmask(SIG_BLOCK, &set, &signals->before_);
  return signals;
}

Signals::~Signals() {
  if (!fd_.open()) return;
  loop_.remove(fd_.number(), readiness_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Task<Result<int>> Signals::next() {
  for (;;) {
    if (Strand::current()->cancelled()) co_return fail(cancelled_error());
    signalfd_siginfo info;
    const ssize_t count = ::read(fd_.number(), &info, sizeof info);
    if (count == sizeof info) co_return static_cast<int>(info.ssi_signo);
    if (errno != EAGAIN && errno != EINTR) co_return fail_errno(errno, "wait for signals");
    CO_TRY_DO(co_await readiness_.wait());
  }
}

void Signals::act_by_default(int number) {
  struct sigaction standard{};
  struct sigaction before{};
  standard.sa_handler = SIG_DFL;
  sigaction(number, &standard, &before);
  sigset_t only, mask;
  sigemptyset(&only);
  sigaddset(&only, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &only, &mask);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(number, &before, nullptr);
}

}  // namespace tutti
