#include "cli/dense_heap.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::cli {
namespace {

struct Outcome {
  int spoilt = 0;
  uint64_t bytes_left = 0;
};

bool is_whole(const std::string& text) {
  return std::ranges::count(text, text[0]) == static_cast<ptrdiff_t>(text.size());
}

// Texts of all sizes, also past what the heap has, each full of its own letter.
void come_and_go(Outcome& outcome) {
  use_dense_heap();
  const uint64_t before = dense_heap_bytes();
  {
    std::mt19937 random(7);
    std::vector<std::string> held;
    for (int i = 0; i < 100'000; ++i) {
      if (held.size() > 1000 || (!held.empty() && random() % 3 == 0)) {
        std::swap(held[random() % held.size()], held.back());
        outcome.spoilt += is_whole(held.back()) ? 0 : 1;
        held.pop_back();
      } else {
        held.emplace_back(1 + random() % 5000, static_cast<char>('a' + random() % 26));
      }
    }
    for (const std::string& one : held) outcome.spoilt += is_whole(one) ? 0 : 1;
  }
  outcome.bytes_left = dense_heap_bytes() - before;
}

}  // namespace

TEST_CASE("what lies in the dense heap is nobody else's, and all of it comes back") {
  Outcome outcome;
  // A thread of its own: others go on with the C library's allocator.
  std::thread(come_and_go, std::ref(outcome)).join();
  CHECK(outcome.spoilt == 0);
  CHECK(outcome.bytes_left == 0);
}

}  // namespace tutti::cli
