#include "world/real/thread_team.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

namespace tutti {
namespace {

// Some 100 µs: twice what waking costs.
constexpr int kSpins = 4000;
// Of a thread whose work is done.
constexpr uint32_t kPastAll = ~uint32_t{0};

// Of a thread that teams keep on one core: how many do, and where it was allowed before.
struct Kept {
  int teams = 0;
  cpu_set_t before;
};
thread_local Kept kept;

std::vector<int> cores_allowed() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (kept.teams > 0)
    allowed = kept.before;
  else if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

void pin(pthread_t thread, int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(thread, sizeof one, &one);
}

void keep_caller_on(int core) {
  if (kept.teams++ == 0) sched_getaffinity(0, sizeof kept.before, &kept.before);
  pin(pthread_self(), core);
}

void let_caller_go() {
  if (--kept.teams == 0) sched_setaffinity(0, sizeof kept.before, &kept.before);
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
  const std::vector<int> cores = cores_allowed();
  threads_ = threads > 0 ? threads : static_cast<int>(cores.size());
  marks_ = std::vector<Mark>(static_cast<size_t>(threads_));
  const bool one_each = threads_ > 1 && std::cmp_equal(threads_, cores.size());
  for (int i = 1; i < threads_; ++i) {
    helpers_.emplace_back([this, i] { serve(i); });
    const pthread_t helper = helpers_.back().native_handle();
    if (one_each)
      pin(helper, cores[static_cast<size_t>(i)]);
    else if (kept.teams > 0)  // it would stay where we are kept
      pthread_setaffinity_np(helper, sizeof kept.before, &kept.before);
  }
  if (one_each) {
    keep_caller_on(cores[0]);
    kept_ = std::this_thread::get_id();
  }
}

ThreadTeam::~ThreadTeam() {
  ending_ = true;
  change(calls_);
  for (std::thread& helper : helpers_) helper.join();
  // Else the thread that was kept may be gone.
  if (kept_ == std::this_thread::get_id()) let_caller_go();
}

void ThreadTeam::run(const std::function<void(int)>& work) {
  if (threads_ == 1) return work(0);
  work_ = &work;
  for (Mark& mark : marks_) mark.reached.store(0, std::memory_order_relaxed);
  change(calls_);
  do_work(0);
}

void ThreadTeam::do_work(int thread) {
  (*work_)(thread);
  reach(thread, kPastAll);
  meet();
}

void ThreadTeam::serve(int thread) {
  for (uint32_t done = 0;;) {
    wait_for_change(calls_, done);
    ++done;
    if (ending_) return;
    do_work(thread);
  }
}

void ThreadTeam::meet() {
  if (threads_ == 1) return;
  const uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (std::cmp_equal(arrived_.fetch_add(1, std::memory_order_acq_rel) + 1, threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    change(meetings_);
  } else {
    wait_for_change(meetings_, meeting);
  }
}

void ThreadTeam::reach(int thread, uint32_t mark) {
  std::atomic<uint32_t>& reached = marks_[static_cast<size_t>(thread)].reached;
  reached.store(mark, std::memory_order_seq_cst);
  wake(reached);
}

void ThreadTeam::wait_for(uint32_t mark) {
  if (threads_ == 1) return;
  for (const Mark& each : marks_)
    wait_until(each.reached, [mark](uint32_t reached) { return reached >= mark; });
}

template <class IsSuch>
void ThreadTeam::wait_until(const std::atomic<uint32_t>& word, const IsSuch& is_such) {
  for (int i = 0; i < kSpins; ++i) {
    if (is_such(word.load(std::memory_order_acquire))) return;
    _mm_pause();
  }
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t now = word.load(std::memory_order_seq_cst);
    if (is_such(now)) break;
    parking_.park(word, now, kNever);
  }
  sleeping_.fetch_sub(1, std::memory_order_seq_cst);
}

void ThreadTeam::wait_for_change(const std::atomic<uint32_t>& word, uint32_t old) {
  wait_until(word, [old](uint32_t now) { return now != old; });
}

void ThreadTeam::change(std::atomic<uint32_t>& word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  wake(word);
}

void ThreadTeam::wake(std::atomic<uint32_t>& word) {
  if (sleeping_.load(std::memory_order_seq_cst) != 0) parking_.wake_all(word);
}

}  // namespace tutti
