// What a crash-consistent AdamW costs: bench_commit plain|commit ELEMENTS prints the median time of
// a step in milliseconds. "plain" is the same kernel over the same memory, in place, and would be
// torn by a kill.
#include "train/commit.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "measure.h"

int main(int argc, char** argv) {
  using namespace tutti;
  if (argc != 3) return 2;
  const bool plain = std::strcmp(argv[1], "plain") == 0;
  StepState state{.elements = std::strtoull(argv[2], nullptr, 10)};
  const uint64_t room = state.elements + 2 * kAdamWBlock;
  const uint64_t bytes = 4096 + 5 * room * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* floats = reinterpret_cast<float*>(static_cast<std::byte*>(memory) + 4096);
  state.words = static_cast<StepWords*>(memory);
  state.weights = floats;
  state.first = floats + room;
  state.second = floats + 2 * room;
  state.gradient = floats + 3 * room;
  state.undo = floats + 4 * room;
  for (uint64_t i = 0; i < state.elements; ++i) floats[3 * room + i] = static_cast<float>(i % 7);
  std::vector<double> times;
  DirectStore store;
  const int steps = state.elements > 20'000'000 ? 9 : 25;
  for (int i = 0; i < steps; ++i) {
    const AdamWStep step = adamw_step({}, static_cast<uint64_t>(i) + 1);
    const uint64_t start = now_ns();
    if (plain) {
      adamw_update(step, {state.weights, state.first, state.second, state.weights, state.first,
                          state.second, state.gradient, state.elements});
    } else {
      say_ready(store, state);
      say_decided(store, state);
      commit(store, state, step);
    }
    if (i > 1) times.push_back(static_cast<double>(now_ns() - start) / 1e6);
  }
  std::sort(times.begin(), times.end());
  std::printf("%.4f\n", times[times.size() / 2]);
  return 0;
}
