// Prints how fast hash64 reads a buffer again and again, in GB/s of processor time:
//   bench_hash BYTES TOTAL_BYTES
#include "base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const size_t rounds = std::max<size_t>(1, std::strtoull(argv[2], nullptr, 10) / bytes);
  std::string buffer(bytes, 'x');
  uint64_t sum = tutti::hash64(tutti::as_bytes(buffer));

  const std::clock_t start = std::clock();
  for (size_t i = 0; i < rounds; ++i) {
    buffer[i % bytes] = static_cast<char>(i);
    sum += tutti::hash64(tutti::as_bytes(buffer));
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("{:016x} {}\n", sum, static_cast<double>(rounds * bytes) / seconds / 1e9);
}
