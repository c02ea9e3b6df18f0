// What the tests of kernels share: numbers, and running a kernel every way it can be run.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "kernels/simd_targets.h"

namespace tutti {

using Floats = std::vector<float>;

inline Floats random_floats(int64_t count, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Floats all(static_cast<size_t>(count));
  for (float& each : all) each = normal(random);
  return all;
}

// Bit for bit.
inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

constexpr int kMostThreads = 3;

// Runs phases, each by one to three threads at once, on every target: make() gives a fresh problem,
// run(problem, phase, thread, threads) a part of it, and check(problem) looks.
template <class Make, class Run, class Check>
void every_way(int phases, const Make& make, const Run& run, const Check& check) {
  for (const char* target : simd_targets()) {
    use_simd_target(target);
    for (int threads = 1; threads <= kMostThreads; ++threads) {
      auto problem = make();
      for (int phase = 0; phase < phases; ++phase) {
        std::vector<std::jthread> others;
        for (int thread = 1; thread < threads; ++thread)
          others.emplace_back([&, thread] { run(problem, phase, thread, threads); });
        run(problem, phase, 0, threads);
      }
      check(problem);
    }
  }
  use_simd_target(simd_targets().back());
}

// What threads found in their parts: the first of all.
using Found = std::array<std::optional<int64_t>, kMostThreads>;
inline std::optional<int64_t> first_of_all(const Found& found) {
  std::optional<int64_t> first;
  for (const auto& each : found)
    if (each && (!first || *each < *first)) first = each;
  return first;
}

// The greatest |a - b| beside the greatest |b|.
inline double relative_error(const Floats& a, const std::vector<double>& b) {
  double error = 0;
  double size = 1e-30;
  for (size_t i = 0; i < b.size(); ++i) {
    error = std::fmax(error, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::fmax(size, std::abs(b[i]));
  }
  return error / size;
}

inline std::vector<double> doubles(const Floats& from) { return {from.begin(), from.end()}; }

}  // namespace tutti
