// A job on a host whose keepers cannot be had, or do not answer: what it tells, and what its log
// knows by then.
#include "cluster/host_job.h"

#include <doctest/doctest.h>

#include "cluster/coordinator_test.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr uint64_t kJob = 7;
constexpr NodeId kNode = 1;
constexpr uint64_t kEpoch = epoch_of(1, 1);

// Has no keepers, or one. Notes what is logged and told, in their order.
class PoorHost final : public JobHost {
 public:
  explicit PoorHost(World& world) : world_(world) {}

  World& world() override { return world_; }
  AlikePool& alike() override { return alike_; }
  NodeId node() const override { return kNode; }
  void report(NodeId, const cluster::JobReport& report) override {
    for (const cluster::Row& row : report.rows()) {
      if (row.what() != cluster::Row::EXITED && row.what() != cluster::Row::NOT_STARTED) continue;
      told.push_back(row);
      known_when_told = known_when_told && !record.gone().empty();
    }
  }
  void report_to_head(const cluster::JobReport&) override {}
  Task<Result<void>> log(const cluster::HostRecord& kept) override {
    record = kept;
    return done();
  }
  void log_soon(const cluster::HostRecord&) override {}
  uint64_t log_exchange(const cluster::ExchangeRecord&) override { return 0; }
  Task<Result<void>> logged(uint64_t) override { return done(); }
  Task<Result<KeeperSession*>> take_keeper() override {
    ++asked;
    if (keeper != nullptr) co_return keeper;
    co_return fail(Code::unavailable, "make directory: Input/output error");
  }
  void give_keeper_back(KeeperSession&) override {}
  Task<Result<void>> end_orphans(std::string) override { co_return {}; }
  std::string job_folder(uint64_t) const override { return "/jobs/7"; }
  std::string agent_socket() const override { return "/agent.sock"; }
  std::string address() const override { return "host1"; }
  std::string exchange_socket(bool) const override { return "/exchange.sock"; }
  Result<std::optional<RunAs>> run_as(const std::string& user) override {
    if (user == "stranger") return fail(Code::denied, "there is no such account");
    return std::nullopt;
  }
  int rank_nice() const override { return 0; }
  void noted(uint64_t, uint64_t, ProcessId, const cluster::Exit&) override {}

  KeeperSession* keeper = nullptr;
  int asked = 0;
  bool known_when_told = true;
  std::vector<cluster::Row> told;
  cluster::HostRecord record;

 private:
  static Task<Result<void>> done() { co_return {}; }

  World& world_;
  AlikePool alike_;
};

cluster::Directive two_workers(std::string account) {
  job::Spec spec = spec_of({{.count = 2}});
  spec.set_account(std::move(account));
  cluster::Directive directive;
  directive.set_job(kJob);
  directive.set_epoch(kEpoch);
  directive.set_coordinator(kNode);
  *directive.mutable_layout() = layout_of(spec, 2);
  *directive.mutable_spec() = std::move(spec);
  set_pairs(set("0-1"), directive.mutable_start());
  return directive;
}

// For a while, as an agent would that is killed then.
Task<void> run_for(World& world, HostJob& job, Duration time) {
  Scope strands;
  strands.spawn(job.run());
  (void)co_await world.clock().sleep(time);
  strands.cancel();
  (void)co_await strands.join();
}

Task<Result<void>> tell_of_failed_starts(World& world, std::string account) {
  PoorHost host(world);
  {
    HostJob job(host, kJob);
    job.on_directive(two_workers(account));
    co_await run_for(world, job, 500ms);
  }
  REQUIRE_FALSE(host.told.empty());
  CHECK(host.known_when_told);
  CHECK(host.told.front().epoch() == kEpoch);
  const int asked = host.asked;
  host.told.clear();
  HostJob next(host, kJob);
  next.adopt(host.record, nullptr);
  // The coordinator had not heard, and goes on with the epoch.
  cluster::Directive again = two_workers(account);
  again.set_revision(1);
  next.on_directive(again);
  co_await run_for(world, next, 500ms);
  CHECK(host.asked == asked);
  REQUIRE_FALSE(host.told.empty());
  for (const cluster::Row& row : host.told) CHECK(row.epoch() == kEpoch);
  CHECK_FALSE(host.told.front().message().empty());
  co_return {};
}

TEST_CASE("what was told as ended before it began is in the log by then, and stays so") {
  for (const std::string account : {"ann", "stranger"}) {
    CAPTURE(account);
    Simulator sim{{.seed = 3, .hosts = 1}};
    auto ran = sim.run(tell_of_failed_starts(sim.host(0), account), 1h);
    REQUIRE(ran.has_value());
  }
}

// Refuses an arena at once, and says what became of a Spawn when it is allowed to.
struct SlowKeeper {
  bool answers = false;
  bool lives = true;              // it gives a word when it is asked for one
  std::vector<uint64_t> spawned;  // the epochs
  std::unique_ptr<KeeperStream> stream;
  std::unique_ptr<KeeperSession> session;
};

Task<void> answer(SlowKeeper& keeper) {
  while (true) {
    auto frame = co_await keeper.stream->receive();
    if (!frame) co_return;
    keeper::Spawn spawn;
    if (frame->kind == KeeperMessage::hello) {
      keeper::Welcome welcome;
      welcome.set_version(kHighestKeeperVersion);
      (void)co_await keeper.stream->send(KeeperMessage::welcome, welcome);
    } else if (frame->kind == KeeperMessage::signal && keeper.lives) {
      const keeper::Signalled signalled;
      (void)co_await keeper.stream->send(KeeperMessage::signalled, signalled);
    } else if (frame->kind == KeeperMessage::create_arena) {
      const keeper::Failure failure = to_failure(Error(Code::exhausted, "no memory"));
      (void)co_await keeper.stream->send(KeeperMessage::failure, failure);
    } else if (frame->kind == KeeperMessage::spawn && frame->parse(spawn)) {
      keeper.spawned.push_back(spawn.epoch());
    }
    if (!keeper.answers || keeper.spawned.size() != 1) continue;
    keeper.spawned.push_back(0);
    const keeper::Failure failure = to_failure(Error(Code::exhausted, "too late"));
    (void)co_await keeper.stream->send(KeeperMessage::failure, failure);
  }
}

Task<Result<void>> meet(World& world, SlowKeeper& keeper) {
  const Address address = Address::unix_socket("/keeper");
  CO_TRY(auto listener, co_await world.network().listen(address));
  CO_TRY(auto ours, co_await world.network().connect(address));
  CO_TRY(auto theirs, co_await listener->accept());
  keeper.stream = std::make_unique<KeeperStream>(std::move(theirs));
  keeper.session = std::make_unique<KeeperSession>(
      world, std::make_unique<KeeperStream>(std::move(ours)), nullptr, "/keeper");
  keeper.session->start([] {});
  co_return {};
}

// Told to start two workers, and at once to start them again: those of before are in the way, and
// the keeper has not said what became of them.
Task<Result<void>> start_twice(World& world, bool lives) {
  SlowKeeper keeper;
  CO_TRY_DO(co_await meet(world, keeper));
  Scope speaking;
  speaking.spawn(answer(keeper));
  PoorHost host(world);
  host.keeper = keeper.session.get();
  {
    HostJob job(host, kJob);
    Scope strands;
    strands.spawn(job.run());
    job.on_directive(two_workers(""));
    CO_TRY_DO(co_await world.clock().sleep(100ms));
    cluster::Directive again = two_workers("");
    again.set_epoch(epoch_of(1, 2));
    keeper.lives = lives;
    job.on_directive(again);
    CO_TRY_DO(co_await world.clock().sleep(5min));
    if (lives) {
      CHECK(host.told.empty());
      keeper.answers = true;
      CO_TRY_DO(co_await world.clock().sleep(5s));
      CHECK(keeper.spawned == std::vector<uint64_t>{kEpoch, 0, epoch_of(1, 2)});
    } else {
      REQUIRE_FALSE(host.told.empty());
      const std::string& message = host.told.front().message();
      CHECK(message.ends_with("it did not answer, and was killed"));
      CHECK(host.told.front().exit().error() == job::KILLED);
    }
    strands.cancel();
    (void)co_await strands.join();
  }
  keeper.session->leave();
  speaking.cancel();
  (void)co_await speaking.join();
  CO_TRY_DO(co_await world.clock().sleep(1s));
  co_return {};
}

TEST_CASE("what a keeper has not answered yet is waited for, as long as it gives a sign of life") {
  for (const bool lives : {true, false}) {
    CAPTURE(lives);
    Simulator sim{{.seed = 3, .hosts = 1}};
    auto ran = sim.run(start_twice(sim.host(0), lives), 1h);
    REQUIRE(ran.has_value());
  }
}

}  // namespace
}  // namespace tutti
