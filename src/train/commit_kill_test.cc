// The commit protocol under real kills: a process is killed at random moments, and its successors.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
  SharedState() {
    const uint64_t floats = 3 * kElements + 2 * kChunk + kElements + kChunk;
    bytes_ = 4096 + floats * sizeof(float);
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    memory_ = static_cast<std::byte*>(pages);
    for (uint64_t i = 0; i < kElements; ++i) state().weights[i] = static_cast<float>(i % 97) - 48;
  }
  ~SharedState() { munmap(memory_, bytes_); }
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  StepState state() const {
    auto* floats = reinterpret_cast<float*>(memory_ + 4096);
    StepState state{
        .words = reinterpret_cast<StepWords*>(memory_), .elements = kElements, .chunk = kChunk};
    state.weights = floats;
    state.undo = state.weights + kElements;
    state.first = state.undo + kChunk;
    state.second = state.first + kElements + kChunk;
    state.gradient = state.second + kElements + kChunk;
    return state;
  }
  float* gradient() const { return const_cast<float*>(state().gradient); }
  uint64_t digest() const {
    const StepState now = state();
    const uint64_t slid = now.slid(now.words->committed);
    Hasher hasher;
    hasher.update(std::as_bytes(std::span(now.weights, kElements)));
    hasher.update(std::as_bytes(std::span(now.first + slid, kElements)));
    hasher.update(std::as_bytes(std::span(now.second + slid, kElements)));
    return hasher.digest64();
  }

 private:
  static constexpr uint64_t kChunk = 4096;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// From wherever it is to `steps`; the gradient is a function of step and element.
void go_on(const SharedState& shared, uint64_t steps) {
  StepState state = shared.state();
  StepWords& words = *state.words;
  DirectStore store;
  while (words.committed.load() < steps) {
    const uint64_t target = words.committed.load() + 1;
    if (words.decided.load() < target) {
      for (uint64_t i = 0; i < kElements; ++i)
        shared.gradient()[i] = static_cast<float>((i * 31 + target * 17) % 1009) * 0.001F - 0.5F;
      say_ready(store, state);
      say_decided(store, state);
    }
    commit(store, state, adamw_step({.learning_rate = 0.01}, target));
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
  const SharedState killed;
  const StepWords& words = *killed.state().words;
  std::mt19937 random(20261116);
  int within_commit = 0;
  int within_chunk = 0;
  for (int kills = 0; kills < kKills; ++kills) {
    kill_one(killed, static_cast<useconds_t>(random() % 2500));
    within_commit += words.decided.load() > words.committed.load();
    within_chunk += words.decided.load() > words.committed.load() && words.progress % 2 == 1;
  }
  MESSAGE(kKills << " kills, " << within_commit << " within a commit, " << within_chunk
                 << " within a chunk");
  CHECK(within_chunk > 0);
  const uint64_t steps = words.committed.load() + 1;
  go_on(killed, steps);
  const SharedState undisturbed;
  go_on(undisturbed, steps);
  CHECK(killed.digest() == undisturbed.digest());
}

}  // namespace
}  // namespace tutti
