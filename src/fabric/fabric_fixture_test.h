// For tests: ranks as threads of this process, over one heap and one arena of control pages.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/group.h"
#include "world/real/parking.h"

namespace tutti {

class PlainMapping final : public Mapping {
 public:
  explicit PlainMapping(MutableBytes bytes) : Mapping(bytes) {}
};

class SharedHost {
 public:
  using Body = std::function<void(Fabric&)>;

  explicit SharedHost(uint32_t ranks, uint64_t bytes_each = 256 << 20)
      : ranks_(ranks), heap_(make(bytes_each * ranks)), control_(make(ranks * 1024)) {
    for (uint32_t rank = 0; rank < ranks; ++rank) begin(rank, 1);
  }
  ~SharedHost() {
    munmap(heap_.data(), heap_.size());
    munmap(control_.data(), control_.size());
  }
  SharedHost(const SharedHost&) = delete;
  SharedHost& operator=(const SharedHost&) = delete;

  Duration timeout = 60s;  // of every wait
  // Of every rank, and of each if they differ.
  TuneWhen tune = TuneWhen::never;
  std::vector<TuneWhen> tune_of;
  TuningStore* tunings = nullptr;

  std::unique_ptr<Fabric> open(uint32_t rank) {
    auto fabric = Fabric::open(parking_, {.heap = std::make_unique<PlainMapping>(heap_),
                                          .control = std::make_unique<PlainMapping>(control_),
                                          .slot = rank,
                                          .gang = 1,
                                          .rank = rank,
                                          .world_size = ranks_,
                                          .cores = 2,
                                          .timeout = timeout,
                                          .tune = tune_of.empty() ? tune : tune_of[rank],
                                          .tunings = tunings});
    REQUIRE_MESSAGE(fabric.has_value(), fabric.error().text());
    return *std::move(fabric);
  }

  // One thread for each rank, and later one for the successor of a rank that died.
  void run(const Body& body, const Body& successor = {}) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        auto fabric = open(rank);
        const auto joined = fabric->join(60s);
        REQUIRE_MESSAGE(joined.has_value(), joined.error().text());
        body(*fabric);
      });
    }
    if (successor) {
      const uint32_t rank = successor_of();
      auto fabric = open(rank);
      REQUIRE(fabric->join(60s).has_value());
      successor(*fabric);
    }
    for (auto& thread : threads) thread.join();
  }

  // As a keeper does.
  void die(uint32_t dead) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      tutti_control_page& page = this->page(rank);
      if (rank == dead) continue;
      // Who sees the dead may begin the next one at once.
      const uint64_t epoch = __atomic_load_n(&page.epoch, __ATOMIC_SEQ_CST);
      __atomic_fetch_add(&page.sequence, 1, __ATOMIC_SEQ_CST);
      __atomic_store_n(&page.dead[0], uint64_t{dead} | uint64_t{dead} << 32, __ATOMIC_SEQ_CST);
      __atomic_store_n(&page.dead_count, 1, __ATOMIC_SEQ_CST);
      __atomic_fetch_add(&page.sequence, 1, __ATOMIC_SEQ_CST);
      __atomic_store_n(&page.aborted, epoch, __ATOMIC_SEQ_CST);
      ring(rank);
    }
  }
  // As an agent does: the dead rank is replaced.
  void begin_epoch(uint64_t epoch, uint32_t replaced) {
    begin(replaced, epoch);
    __atomic_store_n(&page(replaced).pid, 4242, __ATOMIC_SEQ_CST);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      __atomic_store_n(&page(rank).dead_count, 0, __ATOMIC_SEQ_CST);
      __atomic_store_n(&page(rank).epoch, epoch, __ATOMIC_SEQ_CST);
      ring(rank);
    }
    replaced_.store(static_cast<int>(replaced));
  }

 private:
  static MutableBytes make(uint64_t bytes) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    return {static_cast<std::byte*>(pages), bytes};
  }
  tutti_control_page& page(uint32_t rank) {
    return *reinterpret_cast<tutti_control_page*>(control_.data() + rank * 1024UL);
  }
  void begin(uint32_t rank, uint64_t epoch) {
    tutti_control_page& page = this->page(rank);
    page.rank = rank;
    __atomic_store_n(&page.epoch, epoch, __ATOMIC_SEQ_CST);
    page.layout = TUTTI_CONTROL_LAYOUT;
    page.magic = TUTTI_CONTROL_MAGIC;
  }
  void ring(uint32_t rank) {
    auto& word = reinterpret_cast<std::atomic<uint32_t>&>(page(rank).word);
    word.fetch_add(1);
    parking_.wake_all(word);
  }
  uint32_t successor_of() {
    while (replaced_.load() < 0) std::this_thread::yield();
    return static_cast<uint32_t>(replaced_.load());
  }

  RealParking parking_;
  uint32_t ranks_;
  MutableBytes heap_;
  MutableBytes control_;
  std::atomic<int> replaced_ = -1;
};

inline void on_ranks(uint32_t ranks, const SharedHost::Body& body) {
  SharedHost host(ranks);
  host.run(body);
}

}  // namespace tutti
