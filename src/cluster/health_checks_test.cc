#include "cluster/health_checks.h"

#include <doctest/doctest.h>

#include <array>

#include "cluster/ask_port.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr ProcessId kProcess = 3;
constexpr uint16_t kPort = 8080;

job::Health health_of(Duration start) {
  job::Health health;
  health.set_every_ns(to_ns(5s));
  health.set_timeout_ns(to_ns(2s));
  health.set_failures(3);
  health.set_start_ns(to_ns(start));
  return health;
}
job::Health by_command(Duration start) {
  job::Health health = health_of(start);
  health.add_command("check");
  return health;
}

// Runs nothing: the test says how commands end.
struct Owner final : HealthChecks::Owner {
  void run_check(ProcessId) override { ++begun; }
  void kill_check(ProcessId) override { ++killed; }
  void on_health() override { ++told; }
  int begun = 0;
  int killed = 0;
  int told = 0;
};

struct Bench {
  explicit Bench(World& world) : world(world), checks(world, owner) {}
  // Until the next look has begun.
  Task<void> look() {
    auto slept = co_await world.clock().sleep_until(checks.due());
    REQUIRE(slept.has_value());
    checks.look();
  }
  Task<void> look_and_hear(std::string why_not) {
    co_await look();
    checks.on_command(kProcess, std::move(why_not));
  }
  World& world;
  Owner owner;
  HealthChecks checks;
};

void in_simulation(Task<Result<void>> (*test)(World&)) {
  Simulator sim{{.seed = 3, .hosts = 1}};
  auto ran = sim.run(test(sim.host(0)), 1h);
  REQUIRE(ran.has_value());
}

Task<Result<void>> falls_ill(World& world) {
  Bench bench(world);
  bench.checks.watch(kProcess, by_command(1h));
  for (int i = 0; i < 20; ++i) co_await bench.look_and_hear("no");
  CHECK(bench.checks.ill(kProcess).empty());  // it has an hour to begin
  CHECK(bench.checks.text(kProcess) == "not well yet: no");
  CHECK_FALSE(bench.checks.well(kProcess));
  co_await bench.look_and_hear("");
  CHECK(bench.checks.well(kProcess));
  CHECK(bench.checks.text(kProcess) == "well");
  const Instant before = bench.checks.due();
  co_await bench.look_and_hear("no");
  CHECK(bench.checks.due() - before == 5s);
  co_await bench.look_and_hear("no");
  co_await bench.look_and_hear("");  // in a row is what counts
  for (const char* why : {"a", "b", "c"}) {
    CHECK(bench.checks.ill(kProcess).empty());
    co_await bench.look_and_hear(why);
  }
  CHECK(bench.checks.ill(kProcess) == "not well 3 times in a row: c");
  CHECK(bench.checks.well(kProcess));  // who needed it has started
  CHECK(bench.checks.due() == kNever);
  bench.checks.watch(kProcess, by_command(1h));
  CHECK(bench.checks.ill(kProcess).empty());
  CHECK_FALSE(bench.checks.well(kProcess));
  co_await bench.checks.end();
  co_return {};
}

TEST_CASE("a service is ill when it was not well too often in a row") { in_simulation(falls_ill); }

Task<Result<void>> begins_late(World& world) {
  Bench bench(world);
  bench.checks.watch(kProcess, by_command(4s));
  const Instant start = world.clock().now();
  int looks = 0;
  while (bench.checks.ill(kProcess).empty()) {
    co_await bench.look_and_hear("no");
    ++looks;
  }
  CHECK(world.clock().now() - start >= 4s + 2 * 5s);  // the third that counts
  CHECK(looks >= 8);                                  // soon at first, and then less often
  co_await bench.checks.end();
  co_return {};
}

TEST_CASE("a service that is not well in time is ill") { in_simulation(begins_late); }

Task<Result<void>> is_late(World& world) {
  Bench bench(world);
  bench.checks.watch(kProcess, by_command(0s));
  co_await bench.look();
  CHECK(bench.owner.begun == 1);
  const Instant begun = world.clock().now();
  co_await bench.look();
  CHECK(world.clock().now() - begun == 2s);
  CHECK(bench.owner.killed == 1);
  CHECK(bench.checks.text(kProcess) == "not well yet: its check took longer than 2.00 s");
  bench.checks.on_command(kProcess, "killed");  // known already
  CHECK(bench.checks.text(kProcess) == "not well yet: its check took longer than 2.00 s");
  co_await bench.look();
  CHECK(bench.owner.begun == 2);
  co_await bench.look();  // late again, and this time it does not die
  co_await bench.look();
  CHECK(bench.owner.begun == 2);
  CHECK(bench.checks.ill(kProcess) == "not well 3 times in a row: its last check cannot be ended");
  bench.checks.forget(kProcess);
  CHECK(bench.owner.killed == 3);
  CHECK(bench.checks.text(kProcess).empty());
  co_await bench.checks.end();
  co_return {};
}

TEST_CASE("a check that takes too long is killed and counts") { in_simulation(is_late); }

// Answers one call after the other, as the text says, once it has heard something.
Task<void> serve(Listener& listener, std::string answer) {
  while (true) {
    auto stream = co_await listener.accept();
    if (!stream) co_return;
    std::array<std::byte, 512> request;
    (void)co_await (*stream)->read(request);
    const Bytes bytes = as_bytes(answer);
    if (!answer.empty()) (void)co_await (*stream)->write(bytes);
  }
}

Task<Result<void>> ask(World& world, std::string path, std::optional<std::string> answer) {
  Scope scope;
  std::unique_ptr<Listener> listener;
  if (answer) {
    Address address = Address::tcp("127.0.0.1", kPort);
    auto listening = co_await world.network().listen(std::move(address));
    if (!listening) co_return fail(std::move(listening).error());
    listener = std::move(*listening);
    scope.spawn(serve(*listener, *answer));
  }
  job::Health health = health_of(0s);
  health.set_port(kPort);
  health.set_path(std::move(path));
  auto asked = co_await ask_port(world, std::move(health), world.clock().now() + 2s);
  scope.cancel();
  (void)co_await scope.join();
  co_return asked;
}

Task<Result<void>> ask_ports(World& world) {
  auto refused = co_await ask(world, "", std::nullopt);
  CHECK_FALSE(refused.has_value());
  auto listens = co_await ask(world, "", "");
  CHECK(listens.has_value());
  auto well = co_await ask(world, "/health", "HTTP/1.1 204 No Content\r\n\r\n");
  CHECK(well.has_value());
  auto endless = co_await ask(world, "/health", "HTTP/1.1 200 OK\r\n" + std::string(200'000, 'x'));
  CHECK(endless.has_value());
  auto busy = co_await ask(world, "/health", "HTTP/1.1 503 Service Unavailable\r\n\r\n");
  CHECK(busy.error().message() == "it answered 503 Service Unavailable");
  auto silent = co_await ask(world, "/health", "");
  CHECK(silent.error().message() == "it hung up without an answer");
  co_return {};
}

TEST_CASE("a port is well when it takes a call, and says 2xx when asked for a path") {
  in_simulation(ask_ports);
}

TEST_CASE("what is not the beginning of an HTTP reply is not well, whatever it is") {
  for (const char* reply : {"", "H", "HTTP/1.", "HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 2",
                            "HTTP/1.1 200", "HTTP/1.1 20x OK\n", "HTTP/1.1 2000\n",
                            "HTTP/2 200\r\n", "200 OK\r\n", "\r\nHTTP/1.1 200 OK\r\n"})
    CHECK_MESSAGE(judge_http_reply(reply).error().code() == Code::corrupt, reply);
  CHECK(judge_http_reply("HTTP/1.0 200\r\n").has_value());
  CHECK(judge_http_reply("HTTP/1.1 299 \n").has_value());
  CHECK(judge_http_reply("HTTP/1.1 302 Found\r\n").error().code() == Code::unavailable);
  CHECK(judge_http_reply(std::string("\0\x7f\n", 3)).error().message() ==
        "it answered \"??\", which is not HTTP");
}

}  // namespace
}  // namespace tutti
