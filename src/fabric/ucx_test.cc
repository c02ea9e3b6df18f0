// What is UCX's own: processes that die or stop while it holds memory of ours, calls that are given
// up, strangers. What every transport does is in tcp_transport_test.cc.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fabric/tcp_fixture_test.h"
#include "world/real/ucx/ucx_stream.h"

namespace tutti {
namespace {

using tcp::kChunkBytes;

constexpr size_t kLarge = 64 << 20;

// Rank 1 in a process of its own, which finds rank 0 and is found through pipes.
class PipeBook final : public AddressBook {
 public:
  PipeBook(uint32_t rank, int in, int out) : rank_(rank), in_(in), out_(out) {}
  Task<Result<void>> publish(uint64_t epoch, Address address) override {
    if (epoch == 1) {
      const uint16_t port = address.port;
      CHECK(write(out_, &port, sizeof port) == sizeof port);
    }
    co_return {};
  }
  Task<Result<Address>> find(uint64_t epoch, uint32_t rank) override {
    if (epoch != 1 || rank == rank_) co_return fail(Code::unavailable, "nobody is there");
    if (port_ == 0 && read(in_, &port_, sizeof port_) != sizeof port_)
      co_return fail(Code::unavailable, "it is gone");
    co_return Address::tcp("127.0.0.1", port_);
  }

 private:
  uint32_t rank_;
  int in_;
  int out_;
  uint16_t port_ = 0;
};

struct Rank {
  Rank(RealWorld& world, uint32_t rank, int in, int out)
      : world(world), book(rank, in, out), heap(pattern(1 << 20, rank)), carrier(open_ucx(world)) {
    world.run(open(*this, rank));
  }
  ~Rank() { world.run(stop(*this)); }
  static Task<void> open(Rank& self, uint32_t rank) {
    TcpOptions options{.world = self.world,
                       .addresses = self.book,
                       .rank = rank,
                       .world_size = 2,
                       .key = test_key(),
                       .heap = as_mutable_bytes(self.heap),
                       .carrier = self.carrier.get()};
    auto opened = co_await TcpTransport::open(std::move(options));
    REQUIRE(opened.has_value());
    self.transport = std::move(*opened);
    self.transport->begin_epoch(1);
  }
  static Task<void> stop(Rank& self) {
    co_await self.transport->stop();
    co_await self.carrier->stop();
  }

  RealWorld& world;
  PipeBook book;
  std::string heap;
  std::unique_ptr<UcxCarrier> carrier;
  std::unique_ptr<TcpTransport> transport;
};

// Sends and receives something large without end, and something small.
Task<void> go_round(Rank& rank, uint32_t other, uint64_t rounds, Scope& scope, Outcomes& outcomes,
                    std::string& out, std::string& in) {
  for (uint64_t round = 0; round < rounds; ++round) {
    const Tag large{1, round};
    start(scope, outcomes, rank.transport->send(other, large, as_bytes(out)));
    start(scope, outcomes, rank.transport->receive(other, large, as_mutable_bytes(in)));
  }
  co_return;
}

[[noreturn]] void live_as_rank_1(int in, int out) {
  {
    RealWorld world;
    Rank rank(world, 1, in, out);
    std::string sent = pattern(kLarge, 1);
    std::string came(kLarge, '\0');
    Scope scope{Scope::Root{}};
    Outcomes outcomes;
    world.run(go_round(rank, 0, 1, scope, outcomes, sent, came));
    world.run([](Scope& scope) -> Task<void> { (void)co_await scope.join(); }(scope));
  }
  _exit(0);
}

struct Other {
  Other() {
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    pid = fork();
    if (pid == 0) live_as_rank_1(to[0], from[1]);
  }
  ~Other() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    for (const int fd : {to[0], to[1], from[0], from[1]}) close(fd);
  }
  int to[2];
  int from[2];
  pid_t pid;
};

enum class Fate { killed, stopped };

// While large messages are on their way in both directions, the other process dies or stops. The
// end of the epoch ends the calls, and the memory is ours again.
Task<void> lose_it(Rank& rank, pid_t other, Fate fate) {
  std::string sent = pattern(kLarge, 0);
  std::string came(kLarge, '\0');
  Scope scope;
  Outcomes outcomes;
  co_await go_round(rank, 1, 1, scope, outcomes, sent, came);
  while (rank.transport->counters().bytes_taken < kLarge / 8)
    (void)co_await rank.world.clock().sleep(1ms);
  kill(other, fate == Fate::killed ? SIGKILL : SIGSTOP);
  (void)co_await rank.world.clock().sleep(30ms);
  rank.transport->end_epoch({Code::unavailable, "rank 1 was lost"});
  (void)co_await scope.join();
  for (const auto& result : outcomes.results) {
    REQUIRE(!result->has_value());
    CHECK(result->error().message() == "rank 1 was lost");
  }
  came.assign(kLarge, 'x');
  if (fate == Fate::stopped) kill(other, SIGCONT);
  (void)co_await rank.world.clock().sleep(100ms);
  CHECK(came.find_first_not_of('x') == std::string::npos);
}

TEST_CASE("a process that dies or stops during transfers over UCX holds up nobody") {
  for (const Fate fate : {Fate::killed, Fate::stopped}) {
    CAPTURE(static_cast<int>(fate));
    Other other;  // before there is UCX in this process
    RealWorld world;
    Rank rank(world, 0, other.from[0], other.to[1]);
    world.run(lose_it(rank, other.pid, fate));
  }
}

Task<void> give_up(TcpRanks& ranks) {
  std::string sent = pattern(kLarge, 1);
  for (int i = 0; i < 3; ++i) {
    std::string came(kLarge, '\0');
    Outcomes outcomes;
    {
      Scope scope;
      start(scope, outcomes, ranks[0].send(1, {1, 1}, as_bytes(sent)));
      start(scope, outcomes, ranks[1].receive(0, {1, 1}, as_mutable_bytes(came)));
      const uint64_t before = ranks[1].counters().bytes_taken;
      while (ranks[1].counters().bytes_taken < before + kLarge / 8)
        (void)co_await ranks.world.clock().sleep(1ms);
      scope.cancel();
      (void)co_await scope.join();
    }
    came.assign(kLarge, 'x');
    std::string again(kLarge, '\0');
    Scope scope;
    Outcomes good;
    start(scope, good, ranks[0].send(1, {2, 2}, as_bytes(sent)));
    start(scope, good, ranks[1].receive(0, {2, 2}, as_mutable_bytes(again)));
    (void)co_await scope.join();
    CHECK(good.all_good());
    CHECK(again == sent);
    CHECK(came.find_first_not_of('x') == std::string::npos);
  }
}

TEST_CASE("a call over UCX that is given up lets go of its memory, and the next one works") {
  for (const uint32_t streams : {1U, 3U}) {
    TcpRanks ranks({.streams = streams, .ucx = true});
    ranks.world.run(give_up(ranks));
  }
}

Task<void> end_in_the_middle(TcpRanks& ranks) {
  const std::string sent = pattern(kLarge, 1);
  for (uint64_t epoch = 2; epoch < 6; ++epoch) {
    std::string came(kLarge, '\0');
    std::string got(8 << 20, '\0');
    Scope scope;
    Outcomes outcomes;
    start(scope, outcomes, ranks[0].send(1, {1, 1}, as_bytes(sent)));
    start(scope, outcomes, ranks[1].receive(0, {1, 1}, as_mutable_bytes(came)));
    start(scope, outcomes, ranks[0].get(1, 0, as_mutable_bytes(got)));
    while (ranks[1].counters().bytes_taken < (epoch - 1) * kLarge / 8)
      (void)co_await ranks.world.clock().sleep(1ms);
    for (auto& rank : ranks.ranks) rank->begin_epoch(epoch);
    (void)co_await scope.join();
    for (const auto& result : outcomes.results) CHECK(result.has_value());
  }
  std::string came(kLarge, '\0');
  Scope scope;
  Outcomes good;
  start(scope, good, ranks[0].send(1, {1, 1}, as_bytes(sent)));
  start(scope, good, ranks[1].receive(0, {1, 1}, as_mutable_bytes(came)));
  (void)co_await scope.join();
  CHECK(good.all_good());
  CHECK(came == sent);
}

TEST_CASE("epochs end in the middle of large transfers over UCX, and the next one begins") {
  TcpRanks ranks({.streams = 2, .ucx = true});
  ranks.world.run(end_in_the_middle(ranks));
}

Task<void> call_and_wait(TcpTransport& from, TcpTransport& to, Clock& clock) {
  const std::string text = "secret";
  auto call = from.send(1, {1, 1}, as_bytes(text));
  auto sent = co_await with_deadline(clock, clock.now() + 200ms, std::move(call));
  CHECK(sent.error().code() == Code::deadline);
  CHECK(to.counters().strangers > 0);
  CHECK(to.counters().links == 0);
}

Task<std::unique_ptr<TcpTransport>> open_one(TcpOptions options) {
  auto opened = co_await TcpTransport::open(std::move(options));
  REQUIRE(opened.has_value());
  (*opened)->begin_epoch(1);
  co_return std::move(*opened);
}

Task<void> stop_one(TcpTransport& transport) { co_await transport.stop(); }
Task<void> stop_carrier(UcxCarrier& carrier) { co_await carrier.stop(); }

TEST_CASE("who has another key, or does not use UCX too, gets nothing of UCX") {
  set_log_level(LogLevel::off);
  for (const bool wrong_key : {true, false}) {
    RealWorld world;
    MemoryBook book;
    MemoryBook::Page zero(book, 0);
    MemoryBook::Page one(book, 1);
    auto from_carrier = open_ucx(world);
    auto to_carrier = open_ucx(world);
    auto from = world.run(open_one({.world = world,
                                    .addresses = zero,
                                    .rank = 0,
                                    .world_size = 2,
                                    .key = test_key(wrong_key ? 2 : 1),
                                    .carrier = wrong_key ? from_carrier.get() : nullptr}));
    auto to = world.run(open_one({.world = world,
                                  .addresses = one,
                                  .rank = 1,
                                  .world_size = 2,
                                  .key = test_key(1),
                                  .carrier = to_carrier.get()}));
    world.run(call_and_wait(*from, *to, world.clock()));
    world.run(stop_one(*from));
    world.run(stop_one(*to));
    world.run(stop_carrier(*from_carrier));
    world.run(stop_carrier(*to_carrier));
  }
  set_log_level(LogLevel::info);
}

}  // namespace
}  // namespace tutti
