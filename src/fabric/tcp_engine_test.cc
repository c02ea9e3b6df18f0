// Two ranks as they are on Linux: each with an engine, a thread of its own.
#include <mutex>
#include <semaphore>

#include "fabric/tcp_fixture_test.h"
#include "world/real/engine_thread.h"

namespace tutti {
namespace {

constexpr uint64_t kRounds = 20;

class LockedBook final : public AddressBook {
 public:
  LockedBook(MemoryBook& book, std::mutex& lock, uint32_t rank) : page_(book, rank), lock_(lock) {}
  Task<Result<void>> publish(uint64_t epoch, Address address) override {
    const std::lock_guard lock(lock_);
    auto done = co_await page_.publish(epoch, std::move(address));
    co_return done;
  }
  Task<Result<Address>> find(uint64_t epoch, uint32_t rank) override {
    const std::lock_guard lock(lock_);
    auto found = co_await page_.find(epoch, rank);
    co_return found;
  }

 private:
  MemoryBook::Page page_;
  std::mutex& lock_;
};

class RankThread final : public Runnable {
 public:
  RankThread(MemoryBook& book, std::mutex& lock, uint32_t rank, bool ucx)
      : book_(book, lock, rank), rank_(rank), ucx_(ucx), heap_(pattern(1 << 20, rank)) {
    CHECK(engine_.post(*this));
  }
  uint64_t wait() {
    done_.acquire();
    engine_.stop();
    return wrong_;
  }

 private:
  void run() override { engine_.spawn(live()); }

  Task<void> live() {
    std::unique_ptr<UcxCarrier> carrier;
    if (ucx_) carrier = open_ucx(engine_.world());
    TcpOptions options{.world = engine_.world(),
                       .addresses = book_,
                       .rank = rank_,
                       .world_size = 2,
                       .key = test_key(),
                       .heap = as_mutable_bytes(heap_),
                       .streams = 2,
                       .carrier = carrier.get()};
    auto opened = co_await TcpTransport::open(std::move(options));
    const auto owner = std::move(*opened);
    TcpTransport& transport = *owner;
    transport.begin_epoch(1);
    for (uint64_t round = 0; round < kRounds; ++round) co_await exchange(transport, round);
    co_await transport.stop();
    if (carrier != nullptr) co_await carrier->stop();
    done_.release();
  }

  Task<void> exchange(TcpTransport& transport, uint64_t round) {
    const uint32_t other = 1 - rank_;
    const size_t size = round % 2 == 0 ? 1000 : 700'000;
    const std::string sent = pattern(size, 2 * round + rank_);
    std::string came(size, '\0');
    std::string got(100'000, '\0');
    Scope scope;
    Outcomes outcomes;
    start(scope, outcomes, transport.send(other, {round, 0}, as_bytes(sent)));
    start(scope, outcomes, transport.receive(other, {round, 0}, as_mutable_bytes(came)));
    start(scope, outcomes, transport.get(other, round, as_mutable_bytes(got)));
    (void)co_await scope.join();
    // So that nobody leaves while the other still gets.
    Scope parting;
    start(parting, outcomes, transport.send(other, {round, 1}, {}));
    start(parting, outcomes, transport.receive(other, {round, 1}, {}));
    (void)co_await parting.join();
    wrong_ += outcomes.all_good() ? 0 : 1;
    wrong_ += came == pattern(size, 2 * round + other) ? 0 : 1;
    wrong_ += got == pattern(1 << 20, other).substr(round, got.size()) ? 0 : 1;
  }

  LockedBook book_;
  uint32_t rank_;
  bool ucx_;
  std::string heap_;
  uint64_t wrong_ = 0;
  std::binary_semaphore done_{0};
  EngineThread engine_;
};

TEST_CASE("ranks whose engines are threads of their own exchange messages") {
  for (const bool ucx : {false, true}) {
    CAPTURE(ucx);
    MemoryBook book;
    std::mutex lock;
    RankThread zero(book, lock, 0, ucx);
    RankThread one(book, lock, 1, ucx);
    CHECK(zero.wait() == 0);
    CHECK(one.wait() == 0);
  }
}

}  // namespace
}  // namespace tutti
