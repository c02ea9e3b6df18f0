// For tests: ranks on one loop, and bytes that tell where they belong.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "fabric/memory_book.h"
#include "fabric/tcp_limits.h"
#include "fabric/tcp_transport.h"
#include "world/real/real_world.h"
#include "world/real/ucx/ucx_carrier.h"

namespace tutti {

inline JobKey test_key(int which = 1) {
  JobKey key;
  key.fill(static_cast<std::byte>(which));
  return key;
}

inline std::string pattern(size_t bytes, uint64_t seed) {
  std::string text(bytes, '\0');
  uint64_t state = seed * 2 + 1;
  for (char& letter : text) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    letter = static_cast<char>(state >> 56);
  }
  return text;
}

inline std::unique_ptr<UcxCarrier> open_ucx(RealWorld& world) {
  auto opened = UcxCarrier::open(world);
  if (!opened) FAIL(opened.error().text());
  return std::move(*opened);
}

struct RanksOptions {
  uint32_t ranks = 2;
  uint32_t streams = 1;
  bool checksums = true;
  bool encrypt = false;
  bool ucx = false;  // carries it
};

// Ranks of one process, on one loop, over TCP on this host, or UCX. The upper half of each heap of
// 16 MiB may be written by others.
struct TcpRanks {
  static constexpr size_t kHeap = 16 << 20;

  explicit TcpRanks(RanksOptions options = {}) : options(options) { world.run(open_all(*this)); }
  ~TcpRanks() { world.run(stop_all(*this)); }

  static Task<void> open_all(TcpRanks& self) {
    for (uint32_t rank = 0; rank < self.options.ranks; ++rank) {
      self.pages.push_back(std::make_unique<MemoryBook::Page>(self.book, rank));
      self.heaps.push_back(pattern(kHeap, rank));
      self.carriers.push_back(self.options.ucx ? open_ucx(self.world) : nullptr);
      TcpOptions options{.world = self.world,
                         .addresses = *self.pages.back(),
                         .rank = rank,
                         .world_size = self.options.ranks,
                         .key = test_key(),
                         .heap = as_mutable_bytes(self.heaps.back()),
                         .may_put = [](uint64_t offset, uint64_t) { return offset >= kHeap / 2; },
                         .streams = self.options.streams,
                         .checksums = self.options.checksums,
                         .encrypt = self.options.encrypt,
                         .carrier = self.carriers.back().get()};
      auto opened = co_await TcpTransport::open(std::move(options));
      REQUIRE(opened.has_value());
      self.ranks.push_back(std::move(*opened));
      self.ranks.back()->begin_epoch(1);
    }
  }
  static Task<void> stop_all(TcpRanks& self) {
    for (auto& rank : self.ranks) co_await rank->stop();
    for (auto& carrier : self.carriers)
      if (carrier != nullptr) co_await carrier->stop();
  }

  TcpTransport& operator[](size_t rank) { return *ranks[rank]; }

  RanksOptions options;
  RealWorld world;
  MemoryBook book;
  std::vector<std::unique_ptr<MemoryBook::Page>> pages;
  std::vector<std::string> heaps;
  std::vector<std::unique_ptr<UcxCarrier>> carriers;  // or nullptr
  std::vector<std::unique_ptr<TcpTransport>> ranks;
};

// Calls of many strands, and what became of them.
struct Outcomes {
  std::vector<std::optional<Result<void>>> results;
  size_t add() {
    results.emplace_back();
    return results.size() - 1;
  }
  const Result<void>& at(size_t index) const { return *results.at(index); }
  bool all_good() const {
    for (const auto& result : results)
      if (!result || !*result) return false;
    return true;
  }
};

inline Task<void> note(Task<Result<void>> work, Outcomes& outcomes, size_t index) {
  auto result = co_await std::move(work);
  outcomes.results[index] = std::move(result);
}
inline void start(Scope& scope, Outcomes& outcomes, Task<Result<void>> work) {
  const size_t index = outcomes.add();
  scope.spawn(note(std::move(work), outcomes, index));
}

}  // namespace tutti
