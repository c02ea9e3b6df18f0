#include "world/real/loop.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "world/real/fd.h"

namespace tutti {

namespace {

// How often what is ready may make more ready before the kernel is asked for news.
constexpr int kRoundsPerPoll = 8;

// A process that cannot even begin to wait has nothing better to do than say why and leave.
Handle must_open(int fd, const char* what) {
  if (fd >= 0) return own_fd(fd);
  std::fprintf(stderr, "cannot start the event loop: %s: %s; see `ulimit -n`\n", what,
               std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

}  // namespace

Loop::Loop(LoopOptions options)
    : spinner_(options.spin),
      epoll_(must_open(epoll_create1(EPOLL_CLOEXEC), "epoll")),
      timer_(must_open(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd")),
      event_(must_open(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
  auto alarm = add(timer_.number(), EPOLLIN, alarm_);
  auto wakeup = add(event_.number(), EPOLLIN, wakeup_);
  TUTTI_ASSERT(alarm && wakeup, "a new epoll takes a timer and an event");
}

Loop::~Loop() { TUTTI_ASSERT(posted_.empty(), "what was posted runs before its loop dies"); }

Result<void> Loop::add(int fd, uint32_t events, Watch& watch) {
  epoll_event event{events | EPOLLET, {.ptr = &watch}};
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  if (errno == EPERM)
    return fail(Code::unsupported, "descriptor {} cannot be waited for: it is a file", fd);
  return fail_errno(errno, "watch descriptor {}", fd);
}

void Loop::change(int fd, uint32_t events, Watch& watch) {
  epoll_event event{events | EPOLLET, {.ptr = &watch}};
  const int changed = epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, fd, &event);
  TUTTI_ASSERT(changed == 0, "only a descriptor that was added is changed");
}

void Loop::remove(int fd, Watch& watch) {
  const int removed = epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd, nullptr);
  TUTTI_ASSERT(removed == 0, "only a descriptor that was added is removed");
  for (int i = next_report_; i < reported_; ++i)
    if (reports_[static_cast<size_t>(i)].data.ptr == &watch)
      reports_[static_cast<size_t>(i)].data.ptr = nullptr;
}

void Loop::post_from_any_thread(Runnable& runnable) {
  // The write stays inside the lock: once the runnable can be taken, the loop may finish and die.
  const std::lock_guard lock(posted_lock_);
  const bool wake = posted_.empty();
  posted_.push_back(runnable);
  if (wake) eventfd_write(event_.number(), 1);
}

// Edge-triggered, so the counter is never read: each write is reported once.
void Loop::Wakeup::on_ready(uint32_t) {
  List<Runnable> posted;
  {
    const std::lock_guard lock(loop_.posted_lock_);
    posted.splice_back(loop_.posted_);
  }
  while (!posted.empty()) loop_.executor_.post(posted.pop_front());
}

void Loop::Alarm::on_ready(uint32_t) { loop_.alarm_at_ns_ = TimerWheel::kNothing; }

void Loop::run_until_done(const Scope& scope) {
  TUTTI_ASSERT(&Executor::current() == &executor_, "a loop runs on the thread that made it");
  while (scope.size() != 0) {
    for (int i = 0; i < kRoundsPerPoll && !executor_.idle(); ++i) executor_.run_round();
    clock_.fire_due();
    poll(executor_.idle() && scope.size() != 0);
  }
}

void Loop::poll(bool may_wait) {
  if (may_wait) {
    wait();
  } else {
    collect(0);
  }
  dispatch();
}

// Asks the kernel for reports; true when there are any.
bool Loop::collect(int timeout_ms) {
  next_report_ = 0;
  reported_ = epoll_wait(epoll_.number(), reports_.data(), kBatch, timeout_ms);
  if (reported_ < 0) {
    TUTTI_ASSERT(errno == EINTR, "waiting on our own epoll fails only when interrupted");
    reported_ = 0;
  }
  return reported_ > 0;
}

void Loop::dispatch() {
  while (next_report_ < reported_) {
    const epoll_event report = reports_[static_cast<size_t>(next_report_++)];
    if (report.data.ptr != nullptr) static_cast<Watch*>(report.data.ptr)->on_ready(report.events);
  }
}

void Loop::wait() {
  const Instant from = clock_.now();
  const Duration budget = spinner_.budget();
  if (budget > Duration::zero() && spin(from, budget)) return;
  set_alarm();
  collect(-1);
  if (budget == Duration::zero()) spinner_.slept(clock_.now() - from);
}

// Polls until something is reported, a timer is due or the time is up; true when there is no need
// to sleep.
bool Loop::spin(Instant from, Duration longest) {
  const Instant alarm = instant_from_ns(clock_.earliest_ns());
  for (;;) {
    const bool reported = collect(0);
    const Instant now = clock_.now();
    if (reported || now >= alarm) {
      spinner_.spun(now - from, reported);
      return true;
    }
    if (now - from >= longest) {
      spinner_.spun(now - from, false);
      return false;
    }
  }
}

// A timer set too early only makes the loop turn once for nothing, so it is moved only forward;
// deadlines that are armed and disarmed all the time then cost no system calls.
void Loop::set_alarm() {
  const int64_t earliest_ns = clock_.earliest_ns();
  if (earliest_ns >= alarm_at_ns_) return;
  alarm_at_ns_ = earliest_ns;
  const int64_t at_ns = std::max<int64_t>(earliest_ns, 1);  // zero would disarm it
  const itimerspec when{{}, {at_ns / 1'000'000'000, at_ns % 1'000'000'000}};
  timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace tutti
