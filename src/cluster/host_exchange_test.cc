#include "cluster/host_exchange.h"

#include <doctest/doctest.h>

#include "cluster/coordinator_test.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr uint64_t kGang = epoch_of(1, 1);
constexpr uint64_t kStore = epoch_of(1, 1);

// Four workers; 0 and 1 are on this host.
struct Bench final : ExchangeJob {
  Bench() : exchange(std::make_shared<HostExchange>(*this)) {}
  ~Bench() {
    exchange->close();
    sim.run_for(1ms);
    host.scope().kill();
  }

  World& world() override { return host; }
  const JobNumbers& numbers() const override { return numbers_of; }
  uint64_t life_of(ProcessId process) const override { return process < 2 ? life : 0; }
  uint64_t gang_epoch(size_t) const override { return gang; }
  uint64_t store() const override { return store_of; }
  std::optional<std::string> gang_table(size_t, uint64_t epoch) const override {
    if (epoch > life) return {};
    return "table";
  }
  bool finding_out() const override { return finding; }
  void tell_soon() override { told_soon = true; }
  uint64_t log_exchange(cluster::ExchangeRecord record) override {
    log.push_back(std::move(record));
    return log.size();
  }
  Task<Result<void>> logged(uint64_t sequence) override { return log_reaches(*this, sequence); }
  static Task<Result<void>> log_reaches(Bench& bench, uint64_t sequence) {
    while (bench.durable < sequence) CO_TRY_DO(co_await bench.host.clock().sleep(1ms));
    co_return {};
  }

  struct Asked {
    std::optional<ExchangeAnswer> answer;
    // What came of it: "ok", "ok: value", or the code and the message.
    std::string text() const {
      if (!answer) return "waits";
      if (!answer->ok) return fmt::format("{}: {}", code_name(answer->code), answer->message);
      return answer->value.empty() ? "ok" : "ok: " + answer->value;
    }
  };
  static Task<void> run(Bench& bench, ExchangeRequest request, Asked& asked) {
    ExchangeAnswer answer = co_await HostExchange::ask(bench.exchange, std::move(request));
    asked.answer = std::move(answer);
  }
  Asked& ask(ExchangeRequest request) {
    calls.push_back(std::make_unique<Asked>());
    host.scope().spawn(run(*this, std::move(request), *calls.back()));
    sim.run_for(10ms);
    return *calls.back();
  }
  Asked& barrier(uint32_t process, uint64_t round = 0, int64_t timeout_ns = -1) {
    ExchangeRequest request{.life = kGang, .round = round, .timeout_ns = timeout_ns};
    request.process = process;
    request.name = "step";
    return ask(std::move(request));
  }
  Asked& ask(ExchangeRequest::Op op, uint32_t process, std::string value, uint64_t serial = 1) {
    ExchangeRequest request{.op = op, .life = kGang, .round = serial, .process = process};
    request.name = "key";
    request.value = std::move(value);
    return ask(std::move(request));
  }
  // What is told to the coordinator: "ARRIVED 0-1 round 0", one after the other.
  std::string told(bool all = false) {
    cluster::JobReport report;
    exchange->add_rows(report, 5, all);
    std::string text;
    for (const cluster::Row& row : report.rows())
      text += fmt::format("{}{} {} {}{}", text.empty() ? "" : "; ",
                          cluster::Row::What_Name(row.what()), row.message(),
                          set_from(row.processes()).value().text(), row.ask() ? " ?" : "");
    return text;
  }
  cluster::Release release(uint64_t rounds) const {
    cluster::Release release;
    release.set_epoch(gang);
    release.set_barrier("step");
    release.set_rounds(rounds);
    return release;
  }
  void tell(const cluster::Release& release) {
    exchange->on_release(release);
    sim.run_for(10ms);
  }
  void keep(uint32_t process, uint64_t serial, std::string refused = "") {
    cluster::Release release;
    cluster::Release::Kept& kept = *release.add_kept();
    kept.set_key("key");
    kept.set_process(process);
    kept.set_serial(serial);
    kept.set_refused(std::move(refused));
    tell(release);
  }

  Simulator sim{{.seed = 1, .hosts = 1}};
  SimHost& host = sim.host(0);
  JobNumbers numbers_of{spec_of({{.count = 4}})};
  uint64_t life = kGang;
  uint64_t gang = kGang;
  uint64_t store_of = kStore;
  bool finding = false;
  bool told_soon = false;
  std::vector<cluster::ExchangeRecord> log;
  uint64_t durable = 1'000;
  std::vector<std::unique_ptr<Asked>> calls;
  std::shared_ptr<HostExchange> exchange;
};

TEST_CASE("those who wait at a barrier are told in one row, and go on when it is open") {
  Bench bench;
  Bench::Asked& first = bench.barrier(0);
  CHECK(bench.told_soon);
  CHECK(bench.told() == "ARRIVED step 0");
  Bench::Asked& second = bench.barrier(1);
  CHECK(bench.told() == "ARRIVED step 1");
  CHECK(bench.told(true) == "ARRIVED step 0-1 ?");
  bench.tell(bench.release(0));
  CHECK(first.text() == "waits");
  bench.tell(bench.release(1));
  CHECK(first.text() == "ok");
  CHECK(second.text() == "ok");
  CHECK(first.answer->gang_epoch == kGang);
  CHECK(bench.barrier(0).text() == "ok");  // asked again, after its answer was lost
  CHECK(bench.barrier(0, 1).text() == "waits");
  CHECK(bench.told(true) == "ARRIVED step 0 ?; RELEASED step 0");
}

TEST_CASE("nobody goes on before the log knows that the barrier is open") {
  Bench bench;
  bench.durable = 0;
  Bench::Asked& call = bench.barrier(0);
  bench.tell(bench.release(1));
  CHECK(call.text() == "waits");
  REQUIRE(bench.log.size() == 1);
  bench.durable = 1;
  bench.sim.run_for(10ms);
  CHECK(call.text() == "ok");
  // The next agent of this host.
  Bench next;
  next.exchange->restore(bench.log[0]);
  CHECK(next.barrier(1).text() == "ok");
  CHECK(next.told(true) == "RELEASED step 0");
}

TEST_CASE("a release of another epoch opens nothing, and the end of an epoch ends its calls") {
  Bench bench;
  Bench::Asked& call = bench.barrier(0);
  cluster::Release old = bench.release(1);
  old.set_epoch(kGang - 1);
  bench.tell(old);
  CHECK(call.text() == "waits");
  bench.gang = epoch_of(1, 2);
  bench.exchange->look_again();
  bench.sim.run_for(10ms);
  CHECK(call.text() ==
        "denied: epoch 1.1 is over: 1.2 began when processes of this role were started again; what "
        "was put and who had arrived is forgotten, and the next call takes part in 1.2");
  bench.tell(bench.release(1));
  ExchangeRequest request{.life = kGang, .gang_epoch = kGang};
  request.name = "other";
  CHECK(bench.ask(request).text().starts_with("denied: epoch 1.1 is over"));
  request.gang_epoch = 0;
  CHECK(bench.ask(request).text() == "waits");
}

TEST_CASE("a process that was replaced is refused, whatever it asks") {
  Bench bench;
  Bench::Asked& call = bench.barrier(0);
  bench.life = epoch_of(1, 3);
  bench.exchange->look_again();
  bench.sim.run_for(10ms);
  CHECK(call.text() ==
        "denied: epoch 1.1 is over for this process: rank 0 was started again in 1.3");
  CHECK(bench.told(true) == "");
  bench.life = 0;
  CHECK(bench.barrier(1).text() ==
        "denied: epoch 1.1 is over for this process: rank 1 was told to end");
}

TEST_CASE("an agent that came back answers when it has found its processes") {
  Bench bench;
  bench.finding = true;
  Bench::Asked& call = bench.barrier(0);
  CHECK(bench.told(true) == "");
  bench.finding = false;
  bench.exchange->look_again();
  bench.sim.run_for(10ms);
  CHECK(bench.told() == "ARRIVED step 0");
  bench.tell(bench.release(1));
  CHECK(call.text() == "ok");
}

TEST_CASE("whose time is up is told who is missing") {
  Bench bench;
  Bench::Asked& call = bench.barrier(0, 0, to_ns(2s));
  bench.sim.run_for(3s);
  CHECK(bench.told(false) == "ARRIVED step 0 ?");
  CHECK(call.text() ==
        "deadline: barrier 'step' did not open within 2 s; the job's coordinator "
        "does not answer");
  Bench::Asked& other = bench.barrier(0, 0, to_ns(2s));
  cluster::Release missing = bench.release(0);
  set_pairs(set("1,3"), missing.mutable_missing());
  bench.sim.run_for(1'700ms);
  bench.tell(missing);
  bench.sim.run_for(1s);
  CHECK(other.text() ==
        "deadline: barrier 'step' did not open within 2 s; missing: ranks 1,3 of 4");
  Bench::Asked& third = bench.barrier(0);
  set_pairs(set("3"), missing.mutable_finished());
  bench.tell(missing);
  CHECK(third.text() ==
        "unavailable: barrier 'step' cannot open: rank 3 ended without coming to it");
}

TEST_CASE("a value is put when the coordinator has kept it, and told to its next life again") {
  using Op = ExchangeRequest::Op;
  Bench bench;
  Bench::Asked& put = bench.ask(Op::put, 0, "here");
  CHECK(bench.told() == "VALUE key 0");
  CHECK(bench.told() == "");
  bench.keep(0, 1);
  CHECK(put.text() == "ok");
  CHECK(bench.told(true) == "");
  CHECK(bench.ask(Op::put, 0, "here").text() == "ok");  // asked again
  CHECK(bench.ask(Op::put, 1, "there").text().starts_with("exists: 'key' was put by rank 0"));
  bench.store_of = kStore + 1;
  CHECK(bench.told(true) == "VALUE key 0");
  bench.keep(0, 1);
  CHECK(bench.told(true) == "");
  REQUIRE(bench.log.size() == 1);
  Bench next;
  next.exchange->restore(bench.log[0]);
  CHECK(next.told(true) == "VALUE key 0");
  CHECK(next.exchange->records(7).size() == 1);
}

TEST_CASE("what the coordinator does not keep is an error, and may be put by others") {
  using Op = ExchangeRequest::Op;
  Bench bench;
  Bench::Asked& put = bench.ask(Op::put, 0, "here");
  Bench::Asked& other = bench.ask(Op::put, 1, "there");
  bench.keep(0, 1, "too many");
  CHECK(put.text() == "exists: too many");
  CHECK(bench.told() == "VALUE key 1");
  bench.keep(1, 1);
  CHECK(other.text() == "ok");
}

TEST_CASE("a get waits for a value of its own role's epoch") {
  using Op = ExchangeRequest::Op;
  Bench bench;
  Bench::Asked& get = bench.ask(Op::get, 0, "");
  CHECK(bench.told() == "WANTED key ");
  cluster::Release value;
  value.set_key("key");
  value.set_value("old");
  value.set_epoch(kGang - 1);
  bench.tell(value);
  CHECK(get.text() == "waits");
  value.set_epoch(kGang);
  value.set_value("here");
  bench.tell(value);
  CHECK(get.text() == "ok: here");
}

TEST_CASE("calls of one process are bounded, and all end with the job") {
  Bench bench;
  for (int i = 0; i < 64; ++i) CHECK(bench.barrier(0).text() == "waits");
  CHECK(bench.barrier(0).text() ==
        "exhausted: 64 calls of this process wait already, which is the most");
  bench.exchange->close();
  bench.sim.run_for(10ms);
  CHECK(bench.calls[0]->text() == "unavailable: the job has ended");
}

}  // namespace
}  // namespace tutti
