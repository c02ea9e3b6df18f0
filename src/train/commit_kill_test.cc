// The commit protocol under real kills: a process is killed at random moments, and its successors;
// and as if it were killed at every instruction.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/hash.h"
#include "train/commit.h"

namespace tutti {
namespace {

constexpr uint64_t kElements = 300'001;
constexpr int kKills = 200;

// A vault in memory that outlives the process that writes it.
class SharedState {
 public:
  explicit SharedState(uint64_t elements) : elements_(elements) {
    const uint64_t floats = 4 * elements + 4 * kAdamWBlock;
    bytes_ = 4096 + floats * sizeof(float);
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    memory_ = static_cast<std::byte*>(pages);
    for (uint64_t i = 0; i < elements; ++i) state().weights[i] = static_cast<float>(i % 97) - 48;
  }
  ~SharedState() { munmap(memory_, bytes_); }
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  StepState state() const {
    auto* floats = reinterpret_cast<float*>(memory_ + 4096);
    StepState state{.words = reinterpret_cast<StepWords*>(memory_), .elements = elements_};
    state.weights = floats;
    state.undo = state.weights + elements_;
    state.first = state.undo + 2 * kAdamWBlock;
    state.second = state.first + elements_ + kAdamWBlock;
    state.gradient = state.second + elements_ + kAdamWBlock;
    return state;
  }
  float* gradient() const { return const_cast<float*>(state().gradient); }
  uint64_t digest() const {
    const StepState now = state();
    const uint64_t slid = now.slid(now.words->committed);
    Hasher hasher;
    hasher.update(std::as_bytes(std::span(now.weights, elements_)));
    hasher.update(std::as_bytes(std::span(now.first + slid, elements_)));
    hasher.update(std::as_bytes(std::span(now.second + slid, elements_)));
    return hasher.digest64();
  }

  // Whether it was another than `other`, which it makes the same.
  bool copied_to(const SharedState& other) const {
    if (std::memcmp(other.memory_, memory_, bytes_) == 0) return false;
    std::memcpy(other.memory_, memory_, bytes_);
    return true;
  }

 private:
  uint64_t elements_;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// The gradient is a function of step and element.
void decide(const SharedState& shared) {
  StepState state = shared.state();
  DirectStore store;
  const uint64_t target = state.words->committed.load() + 1;
  for (uint64_t i = 0; i < state.elements; ++i)
    shared.gradient()[i] = static_cast<float>((i * 31 + target * 17) % 1009) * 0.001F - 0.5F;
  say_ready(store, state);
  say_decided(store, state);
}

void commit_one(const SharedState& shared) {
  StepState state = shared.state();
  DirectStore store;
  commit(store, state, adamw_step({.learning_rate = 0.01}, state.words->committed.load() + 1));
}

// From wherever it is to `steps`.
void go_on(const SharedState& shared, uint64_t steps) {
  const StepWords& words = *shared.state().words;
  while (words.committed.load() < steps) {
    if (words.decided.load() == words.committed.load()) decide(shared);
    commit_one(shared);
  }
}

// Kills a process that goes on, some time after it began to; however long it takes to begin.
void kill_one(const SharedState& shared, useconds_t after_us) {
  const StepWords& words = *shared.state().words;
  const uint64_t progress = words.progress.load();
  const uint64_t committed = words.committed.load();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    go_on(shared, UINT64_MAX);
    _exit(0);
  }
  while (words.progress.load() == progress && words.committed.load() == committed) usleep(50);
  usleep(after_us);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
}

TEST_CASE("two hundred kills at random moments, in commit and in recovery, change no bit") {
  const SharedState killed(kElements);
  const StepWords& words = *killed.state().words;
  std::mt19937 random(20261116);
  int within_commit = 0;
  int within_block = 0;
  for (int kills = 0; kills < kKills; ++kills) {
    kill_one(killed, static_cast<useconds_t>(random() % 2500));
    within_commit += words.decided.load() > words.committed.load();
    within_block += words.decided.load() > words.committed.load() && words.progress != 0;
  }
  MESSAGE(kKills << " kills, " << within_commit << " within a commit, " << within_block
                 << " within a block");
  CHECK(within_block > 0);
  const uint64_t steps = words.committed.load() + 1;
  go_on(killed, steps);
  const SharedState undisturbed(kElements);
  go_on(undisturbed, steps);
  CHECK(killed.digest() == undisturbed.digest());
}

// A process that makes one commit, an instruction at a time.
class Stepped {
 public:
  explicit Stepped(const SharedState& shared) : child_(fork()) {
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
      commit_one(shared);
      _exit(0);
    }
    REQUIRE(waitpid(child_, &status_, 0) == child_);
  }
  ~Stepped() {
    kill(child_, SIGKILL);
    waitpid(child_, &status_, 0);
  }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  void step() {
    REQUIRE(ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr) == 0);
    REQUIRE(waitpid(child_, &status_, 0) == child_);
    REQUIRE(WIFSTOPPED(status_));
  }

 private:
  pid_t child_;
  int status_ = 0;
};

TEST_CASE("a commit that is killed at any instruction, with any kernel, is whole in the end") {
  constexpr uint64_t kFew = 3 * kAdamWBlock + 11;
  for (const char* kernel : adamw_kernels()) {
    use_adamw_kernel(kernel);
    for (const uint64_t step : {0UL, 1UL}) {  // sliding down and up
      CAPTURE(kernel);
      CAPTURE(step);
      const SharedState whole(kFew);
      go_on(whole, step + 1);
      const SharedState stepped(kFew);
      go_on(stepped, step);
      decide(stepped);
      const SharedState before(kFew);
      Stepped process(stepped);
      int states = 0;
      while (stepped.state().words->committed.load() == step) {
        process.step();
        if (!stepped.copied_to(before)) continue;
        ++states;
        const SharedState successor(kFew);
        REQUIRE(before.copied_to(successor));
        go_on(successor, step + 1);
        REQUIRE(successor.digest() == whole.digest());
      }
      CHECK(states > 20);
    }
  }
  use_adamw_kernel(adamw_kernels().back());
}

}  // namespace
}  // namespace tutti
