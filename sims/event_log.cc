// Each host has an event log that several strands append to, and takes a snapshot now and then;
// hosts lose power and disks fail at any moment. A log that broke is opened again, as is one that
// was closed, or left behind without being closed.
//
// What must hold after every opening: all records that were acknowledged, or replayed by an earlier
// opening, are there in their order; every other was posted since; the snapshot is the state that
// they add up to; and no log is ever called damaged.
#include "cluster/event_log.h"

#include <memory>

#include "base/hash.h"
#include "sims/scenarios.h"

namespace tutti::sims {

namespace {

constexpr uint64_t kWriters = 4;
constexpr uint64_t kLargestRecord = 2500;  // several sectors, so that batches can be torn
constexpr uint64_t kSegmentBytes = 24_KiB;
constexpr uint64_t kSnapshotEveryBytes = 60_KiB;
constexpr Duration kRecovery = 20s;

// What one host's log must hold; the truth that no host owns. Records are known by their hashes.
struct Truth {
  std::vector<uint64_t> settled;  // acknowledged or replayed, from sequence 1
  std::vector<uint64_t> posted;   // after those, since the last opening
  uint64_t opened = 0;            // how often
};
struct Ledger {
  std::vector<Truth> hosts;
};
using LedgerPtr = std::shared_ptr<Ledger>;

uint64_t add_up(uint64_t state, uint64_t record) { return mix_bits(state ^ record) + record; }

uint64_t state_of(const std::vector<uint64_t>& records, uint64_t count) {
  uint64_t state = 0;
  for (uint64_t i = 0; i < count; ++i) state = add_up(state, records[i]);
  return state;
}

class Checker final : public EventLogReader {
 public:
  Checker(SimHost& host, Truth& truth) : host_(host), truth_(truth) {}

  Result<void> on_snapshot(uint64_t sequence, std::string_view state) override {
    Simulator& sim = host_.simulator();
    const uint64_t count = truth_.settled.size();
    if (!sim.check(sequence <= count, "a snapshot stands for {} records of {}", sequence, count))
      return fail(Code::internal, "the run ends");
    const std::string expected = fmt::format("{}", state_of(truth_.settled, sequence));
    sim.check(state.starts_with(expected), "snapshot {} is not the one taken", sequence);
    found_.assign(truth_.settled.begin(),
                  truth_.settled.begin() + static_cast<ptrdiff_t>(sequence));
    return {};
  }

  Result<void> on_record(uint64_t sequence, std::string_view record) override {
    Simulator& sim = host_.simulator();
    const uint64_t hash = hash64(as_bytes(record));
    sim.check(sequence == found_.size() + 1, "record {} follows {}", sequence, found_.size());
    const uint64_t settled = truth_.settled.size();
    if (sequence <= settled) {
      sim.check(hash == truth_.settled[sequence - 1], "record {} is another", sequence);
    } else {
      const uint64_t at = sequence - settled - 1;
      sim.check(at < truth_.posted.size() && hash == truth_.posted[at],
                "record {} was never posted", sequence);
    }
    found_.push_back(hash);
    return {};
  }

  // The opening succeeded: what was replayed stays.
  void settle(const EventLog& log) {
    Simulator& sim = host_.simulator();
    sim.check(found_.size() >= truth_.settled.size(), "{} of {} records are left", found_.size(),
              truth_.settled.size());
    sim.check(log.last_sequence() == found_.size(), "the log is at {}, its reader at {}",
              log.last_sequence(), found_.size());
    truth_.settled = std::move(found_);
    truth_.posted.clear();
    ++truth_.opened;
  }

 private:
  SimHost& host_;
  Truth& truth_;
  std::vector<uint64_t> found_;
};

// One life of a log, from its opening to its end, however that comes.
class Life {
 public:
  Life(SimHost& host, Truth& truth) : host_(host), truth_(truth) {}

  Task<Result<void>> run() {
    Checker checker(host_, truth_);
    const EventLogOptions options{.folder = "/var/log",
                                  .segment_bytes = kSegmentBytes,
                                  .reserve = host_.random().below(2) == 0};
    auto opened = co_await EventLog::open(host_, options, checker);
    if (!opened) {
      host_.simulator().check(opened.error().code() != Code::corrupt, "{}", opened.error().text());
      co_return fail(opened.error());
    }
    log_ = std::move(*opened);
    checker.settle(*log_);
    const Duration length = 1ms * host_.random().below(2000);
    const Instant end = host_.clock().now() + length;
    auto lived = co_await with_deadline(host_.clock(), end, work());
    const bool over = !lived && lived.error().code() == Code::deadline;
    if (!over) co_return lived;
    if (host_.random().below(2) == 0) co_return co_await close();
    TUTTI_PROBE("event log: it was left behind without being closed");
    co_return {};
  }

 private:
  Task<Result<void>> work() {
    Scope scope;
    for (uint64_t i = 0; i < kWriters; ++i) scope.spawn(write());
    scope.spawn(take_snapshots());
    co_return co_await scope.join();
  }

  Task<Result<void>> close() {
    CO_TRY_DO(co_await log_->close());
    acknowledged(log_->last_sequence());
    co_return {};
  }

  std::string make_record() {
    std::string record(host_.random().below(kLargestRecord), '\0');
    host_.random().fill(as_mutable_bytes(record));
    return record;
  }

  uint64_t post() {
    const std::string record = make_record();
    const uint64_t sequence = log_->post(record);
    truth_.posted.push_back(hash64(as_bytes(record)));
    host_.simulator().check(sequence == truth_.settled.size() + truth_.posted.size(),
                            "record {} has the number {}",
                            truth_.settled.size() + truth_.posted.size(), sequence);
    return sequence;
  }

  void acknowledged(uint64_t sequence) {
    const uint64_t before = truth_.settled.size();
    if (sequence <= before) return;
    const auto end = truth_.posted.begin() + static_cast<ptrdiff_t>(sequence - before);
    truth_.settled.insert(truth_.settled.end(), truth_.posted.begin(), end);
    truth_.posted.erase(truth_.posted.begin(), end);
  }

  Task<Result<void>> write() {
    for (;;) {
      const uint64_t sequence = post();
      const uint64_t choice = host_.random().below(8);
      // Some do not wait at all: whoever writes next writes theirs.
      if (choice == 1) CO_TRY_DO(co_await wait_briefly(sequence));
      if (choice > 1) CO_TRY_DO(co_await wait(sequence));
      const Duration pause = 1us * host_.random().below(20'000);
      CO_TRY_DO(co_await host_.clock().sleep(pause));
    }
  }

  Task<Result<void>> wait(uint64_t sequence) {
    CO_TRY_DO(co_await log_->durable(sequence));
    acknowledged(sequence);
    co_return {};
  }

  // Gives up after a time in which a batch is often not written.
  Task<Result<void>> wait_briefly(uint64_t sequence) {
    const Duration patience = 1us * host_.random().below(1500);
    const Instant until = host_.clock().now() + patience;
    auto waited = co_await with_deadline(host_.clock(), until, wait(sequence));
    if (!waited && waited.error().code() == Code::deadline) co_return {};
    co_return waited;
  }

  Task<Result<void>> take_snapshots() {
    for (;;) {
      CO_TRY_DO(co_await host_.clock().sleep(30ms));
      if (log_->bytes_since_snapshot() < kSnapshotEveryBytes) continue;
      const uint64_t sequence = log_->last_sequence();
      CO_TRY_DO(co_await wait(sequence));
      const uint64_t sum = state_of(truth_.settled, sequence);
      const std::string state = fmt::format("{}{:{}}", sum, "", host_.random().below(3000));
      auto taken = co_await log_->snapshot(sequence, state);
      if (!taken && taken.error().code() == Code::cancelled) co_return taken;
      // When it failed, the log is as it was, and goes on.
    }
  }

  SimHost& host_;
  Truth& truth_;
  std::unique_ptr<EventLog> log_;
};

Task<Result<void>> live_on(SimHost& host, LedgerPtr ledger) {
  for (;;) {
    Life life(host, ledger->hosts[host.index()]);
    auto ended = co_await life.run();
    if (!ended && ended.error().code() == Code::cancelled) co_return ended;
    CO_TRY_DO(co_await host.clock().sleep(20ms));
  }
}

Task<Result<void>> lose_power(Simulator& sim) {
  SimRandom random = sim.random(RandomStream::luck);
  for (;;) {
    const Duration quiet = Duration(static_cast<int64_t>(random.below(2'000'000'000)));
    CO_TRY_DO(co_await sim.clock().sleep(quiet));
    const auto host = static_cast<uint32_t>(random.below(sim.hosts()));
    sim.crash(host);
    CO_TRY_DO(co_await sim.clock().sleep(50ms));
    sim.reboot(host);
  }
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  auto ledger = std::make_shared<Ledger>();
  ledger->hosts.resize(sim.hosts());
  sim.set_program([ledger](SimHost& host) { return live_on(host, ledger); });
  sim.start_all();
  Scope scope;
  scope.spawn(lose_power(sim));
  auto suffered = co_await suffer(sim, length);
  scope.cancel();
  auto joined = co_await scope.join();
  if (!suffered) co_return suffered;
  if (!joined) co_return joined;
  sim.heal_all();
  const std::vector<Truth> before = ledger->hosts;
  CO_TRY_DO(co_await sim.clock().sleep(kRecovery));
  for (uint32_t host = 0; host < sim.hosts(); ++host) {
    const Truth& now = ledger->hosts[host];
    sim.check(now.settled.size() > before[host].settled.size() && now.opened > before[host].opened,
              "host{} writes no more though all is well", host);
  }
  co_return {};
}

}  // namespace

const Scenario kEventLog = {
    "event-log", "event logs appended to, snapshotted, crashed and opened again", 3, 1, 30s, run};

}  // namespace tutti::sims
