// A commit as if it were killed at every instruction, and what goes on from there.
#include "run/commit_log.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

using namespace tutti;

namespace {

constexpr int kThreads = 2;
constexpr int64_t kElements = 2 * kMarkedBlock + 11;
constexpr int64_t kBlocks = 3;

// What outlives a process, in memory that a child shares.
class Kept {
 public:
  Kept() {
    void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    memory_ = static_cast<std::byte*>(pages);
    for (int64_t i = 0; i < kElements; ++i) {
      floats(0)[i] = static_cast<float>(i % 97) - 48;
      floats(3)[i] = static_cast<float>(i * 31 % 1009) * 0.001F - 0.5F;
    }
  }
  ~Kept() { munmap(memory_, kBytes); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  // A step as two threads make it, one after the other.
  void commit(int64_t step) {
    CommitLog log({memory_, CommitLog::record_bytes(kThreads)},
                  {reinterpret_cast<uint32_t*>(memory_ + kDone), kBlocks});
    log.begin(step);
    const AdamWStep common = adamw_step({.learning_rate = 0.01}, static_cast<uint64_t>(step));
    for (const int thread : {1, 0}) {
      const int64_t first = thread == 0 ? 0 : kMarkedBlock;
      const int64_t end = thread == 0 ? kMarkedBlock : kElements;
      log.update(thread, first / kMarkedBlock, common,
                 {.weights_out = floats(0) + first,
                  .first_out = floats(1) + first,
                  .second_out = floats(2) + first,
                  .weights = floats(0) + first,
                  .first = floats(1) + first,
                  .second = floats(2) + first,
                  .gradient = floats(3) + first,
                  .elements = static_cast<size_t>(end - first)});
    }
    *finished() = step;
  }
  int64_t* finished() { return reinterpret_cast<int64_t*>(memory_ + kFinished); }
  bool has_state_of(const Kept& other) const {
    return std::memcmp(memory_ + kFloats, other.memory_ + kFloats, kBytes - kFloats) == 0;
  }
  // Whether it was another than `other`, which it makes the same.
  bool copied_to(const Kept& other) const {
    if (std::memcmp(other.memory_, memory_, kBytes) == 0) return false;
    std::memcpy(other.memory_, memory_, kBytes);
    return true;
  }

 private:
  static constexpr size_t kDone = 1 << 15;
  static constexpr size_t kFinished = kDone + 1024;
  static constexpr size_t kFloats = kDone + 4096;
  static constexpr size_t kBytes = kFloats + 4 * kElements * sizeof(float);

  float* floats(int64_t which) {
    return reinterpret_cast<float*>(memory_ + kFloats) + which * kElements;
  }

  std::byte* memory_ = nullptr;
};

void step_through_commit() {
  Kept whole;
  whole.commit(1);
  Kept before_second;
  REQUIRE(whole.copied_to(before_second));
  whole.commit(2);
  Kept stepped;
  REQUIRE(before_second.copied_to(stepped));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    stepped.commit(2);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  Kept seen;
  int states = 0;
  while (*stepped.finished() != 2) {
    REQUIRE(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSTOPPED(status));
    if (!stepped.copied_to(seen)) continue;
    ++states;
    Kept successor;
    REQUIRE(seen.copied_to(successor));
    successor.commit(2);
    REQUIRE(successor.has_state_of(whole));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  CHECK(states > 50);
}

}  // namespace

TEST_CASE("a commit that is killed at any instruction, and once more, is whole in the end") {
  REQUIRE(CommitLog::record_bytes(kThreads) <= 1 << 15);
  for (const char* kernel : adamw_kernels()) {
    CAPTURE(kernel);
    use_adamw_kernel(kernel);
    step_through_commit();
  }
  use_adamw_kernel(adamw_kernels().back());
}
