#include "world/sim/network.h"

#include <doctest/doctest.h>

#include <string>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

using StreamPtr = std::unique_ptr<Stream>;

Task<Result<std::string>> read_some(Stream& stream) {
  std::string text(65536, '\0');
  const MutableBytes into = as_mutable_bytes(text);
  CO_TRY(const size_t got, co_await stream.read(into));
  text.resize(got);
  co_return text;
}

Task<Result<std::string>> read_to_end(Stream& stream) {
  std::string all;
  for (;;) {
    CO_TRY(std::string some, co_await read_some(stream));
    if (some.empty()) co_return all;
    all += some;
  }
}

Task<Result<void>> say(Stream& stream, std::string text) {
  const Bytes bytes = as_bytes(text);
  co_return co_await stream.write(bytes);
}

Task<Result<void>> serve_echo(SimHost& host) {
  const Address address = Address::tcp("0.0.0.0", 7000);
  CO_TRY(auto listener, co_await host.network().listen(address));
  for (;;) {
    CO_TRY(auto stream, co_await listener->accept());
    for (;;) {
      auto text = co_await read_some(*stream);
      if (!text || text->empty()) break;
      auto said = co_await say(*stream, *text);
      if (!said) break;
    }
  }
}

struct EchoWorld {
  Simulator sim;
  explicit EchoWorld(uint32_t hosts = 2, CostTable costs = {})
      : sim({.hosts = hosts, .costs = costs}) {
    sim.set_program([](SimHost& host) { return serve_echo(host); });
    sim.start_all();
    sim.run_for(1ms);
  }
};

Task<Result<StreamPtr>> dial(SimHost& host, std::string to) {
  CO_TRY(Address address, Address::parse(to));
  co_return co_await host.network().connect(address);
}

Task<Result<void>> echo_once(SimHost& host, std::string to, std::string& heard) {
  CO_TRY(StreamPtr stream, co_await dial(host, to));
  CO_TRY_DO(co_await say(*stream, "hello"));
  CO_TRY(heard, co_await read_some(*stream));
  co_return {};
}

TEST_CASE("bytes go to another host and back") {
  EchoWorld world;
  std::string heard;
  REQUIRE(world.sim.run(echo_once(world.sim.host(0), "host1:7000", heard), 1s));
  CHECK(heard == "hello");
}

TEST_CASE("unknown hosts are not found, closed ports refuse, dark hosts time out") {
  EchoWorld world;
  std::string heard;
  auto unknown = world.sim.run(echo_once(world.sim.host(0), "host9:7000", heard), 1s);
  CHECK(unknown.error().code() == Code::not_found);
  auto refused = world.sim.run(echo_once(world.sim.host(0), "host1:7001", heard), 1s);
  CHECK(refused.error().code() == Code::unavailable);
  world.sim.crash(1);
  auto dark = world.sim.run(echo_once(world.sim.host(0), "host1:7000", heard), 1min);
  CHECK(dark.error().code() == Code::deadline);
}

TEST_CASE("a connection waits for a partition to heal") {
  EchoWorld world;
  const uint64_t cut = world.sim.links().partition(HostSet::one(0), HostSet::one(1));
  std::string heard;
  world.sim.scope().spawn([](Simulator& sim, uint64_t number) -> Task<void> {
    auto slept = co_await sim.clock().sleep(3s);
    if (slept) sim.links().heal(number);
  }(world.sim, cut));
  REQUIRE(world.sim.run(echo_once(world.sim.host(0), "host1:7000", heard), 1min));
  CHECK(heard == "hello");
  CHECK(world.sim.now_ns() > 3'000'000'000);
}

Task<Result<void>> write_much(SimHost& host, size_t& written) {
  CO_TRY(StreamPtr stream, co_await dial(host, "host1:7001"));
  for (;;) {
    CO_TRY_DO(co_await say(*stream, std::string(10'000, 'x')));
    written += 10'000;
  }
}

Task<Result<void>> accept_and_drain(SimHost& host, Duration wait, size_t& got) {
  const Address address = Address::tcp("0.0.0.0", 7001);
  CO_TRY(auto listener, co_await host.network().listen(address));
  CO_TRY(StreamPtr stream, co_await listener->accept());
  CO_TRY_DO(co_await host.clock().sleep(wait));
  while (got < 2'000'000) {
    CO_TRY(std::string text, co_await read_some(*stream));
    got += text.size();
  }
  co_return {};
}

TEST_CASE("a writer waits while nobody reads, and goes on when somebody does") {
  Simulator sim({.hosts = 2});
  size_t written = 0;
  size_t got = 0;
  sim.host(1).scope().spawn(accept_and_drain(sim.host(1), 5s, got));
  sim.run_for(1ms);
  sim.host(0).scope().spawn(write_much(sim.host(0), written));
  sim.run_for(4s);
  CHECK(written <= SimStream::kWindow);
  CHECK(got == 0);
  sim.run_for(4s);
  CHECK(got >= 2'000'000);
}

Task<Result<void>> half_close(SimHost& host, std::string& heard) {
  CO_TRY(StreamPtr stream, co_await dial(host, "host1:7000"));
  CO_TRY_DO(co_await say(*stream, "one "));
  CO_TRY_DO(co_await say(*stream, "two"));
  CO_TRY_DO(stream->shutdown_write());
  CO_TRY(heard, co_await read_to_end(*stream));
  auto late = co_await say(*stream, "late");
  host.simulator().check(!late, "a stream that was shut takes no more");
  co_return {};
}

TEST_CASE("half-close ends one direction only") {
  EchoWorld world;
  std::string heard;
  REQUIRE(world.sim.run(half_close(world.sim.host(0), heard), 1min));
  CHECK(heard == "one two");
}

Task<Result<void>> crash_and_write(Simulator& sim, Duration dark, Code expected) {
  CO_TRY(StreamPtr stream, co_await dial(sim.host(0), "host1:7000"));
  CO_TRY_DO(co_await say(*stream, "hello"));
  CO_TRY(std::string heard, co_await read_some(*stream));
  sim.crash(1);
  CO_TRY_DO(co_await sim.clock().sleep(10ms));
  const int64_t from = sim.now_ns();
  CO_TRY_DO(co_await say(*stream, "are you there"));
  sim.scope().spawn([](Simulator& sim, Duration dark) -> Task<void> {
    auto slept = co_await sim.clock().sleep(dark);
    if (slept) sim.reboot(1);
  }(sim, dark));
  auto answer = co_await read_some(*stream);
  sim.check(!answer && answer.error().code() == expected, "got {}",
            answer ? *answer : answer.error().text());
  sim.check(sim.now_ns() - from >= to_ns(std::min(dark, Duration(SimStream::kGiveUpNs))),
            "nothing is known before");
  co_return {};
}

TEST_CASE("peers of a crashed host learn of it by a reset once it is back") {
  EchoWorld world;
  auto result = world.sim.run(crash_and_write(world.sim, 3s, Code::unavailable), 1min);
  CHECK_MESSAGE(result, (result ? "" : result.error().text()));
}

TEST_CASE("peers of a host that stays dark give up after a while") {
  EchoWorld world;
  auto result = world.sim.run(crash_and_write(world.sim, 1h, Code::deadline), 1min);
  CHECK_MESSAGE(result, (result ? "" : result.error().text()));
}

Task<Result<void>> talk_across_cut(Simulator& sim, Duration length, bool one_way, Code* error) {
  CO_TRY(StreamPtr stream, co_await dial(sim.host(0), "host1:7000"));
  const HostSet a = HostSet::one(0);
  const HostSet b = HostSet::one(1);
  const uint64_t cut = one_way ? sim.links().add(b, a, {.cut = true}) : sim.links().partition(a, b);
  sim.scope().spawn([](Simulator& sim, uint64_t number, Duration length) -> Task<void> {
    auto slept = co_await sim.clock().sleep(length);
    if (slept) sim.links().heal(number);
  }(sim, cut, length));
  CO_TRY_DO(co_await say(*stream, "hel"));
  CO_TRY_DO(co_await sim.clock().sleep(1ms));
  auto more = co_await say(*stream, "lo");
  std::string heard;
  while (heard.size() < 5) {
    auto text = co_await read_some(*stream);
    if (!text) {
      *error = text.error().code();
      co_return {};
    }
    heard += *text;
  }
  sim.check(heard == "hello", "heard {}", heard);
  sim.check(to_ns(length) < sim.now_ns(), "nothing crosses a cut");
  co_return {};
}

TEST_CASE("a stream outlives a short cut, both ways or one, and not a long one") {
  for (const bool one_way : {false, true}) {
    EchoWorld world;
    Code error{};
    REQUIRE(world.sim.run(talk_across_cut(world.sim, 4s, one_way, &error), 1min));
    CHECK(error == Code{});
    REQUIRE(world.sim.run(talk_across_cut(world.sim, 1h, one_way, &error), 1min));
    CHECK(error == Code::deadline);
  }
}

Task<Result<void>> send_marks(SimHost& host, std::string to, int count) {
  CO_TRY(StreamPtr stream, co_await dial(host, to));
  for (int i = 0; i < count; ++i) {
    const std::string mark = fmt::format("{};", i);
    CO_TRY_DO(co_await say(*stream, mark));
  }
  co_return {};
}

Task<Result<void>> collect(SimHost& host, std::string& all) {
  const Address address = Address::tcp("0.0.0.0", 7001);
  CO_TRY(auto listener, co_await host.network().listen(address));
  CO_TRY(StreamPtr stream, co_await listener->accept());
  CO_TRY(all, co_await read_to_end(*stream));
  co_return {};
}

TEST_CASE("jitter and loss never reorder bytes within a stream") {
  Simulator sim({.hosts = 2});
  sim.links().add(HostSet::all(), HostSet::all(), {.loss = 0.3});
  std::string all;
  sim.host(1).scope().spawn(collect(sim.host(1), all));
  sim.run_for(1ms);
  sim.host(0).scope().spawn(send_marks(sim.host(0), "host1:7001", 500));
  sim.run_for(10min);
  std::string expected;
  for (int i = 0; i < 500; ++i) expected += fmt::format("{};", i);
  CHECK(all == expected);
}

Task<Result<void>> unix_server(SimHost& host, std::string& seen) {
  const Address address = Address::unix_socket("/run/x.sock");
  CO_TRY(auto listener, co_await host.network().listen(address));
  CO_TRY(StreamPtr stream, co_await listener->accept());
  CO_TRY(const Credentials who, stream->peer_credentials());
  std::string text(100, '\0');
  const MutableBytes into = as_mutable_bytes(text);
  std::vector<Handle> handles;
  CO_TRY(const size_t got, co_await stream->read(into, &handles));
  text.resize(got);
  CO_TRY(auto passed, host.network().adopt(std::move(handles.at(0))));
  CO_TRY_DO(co_await say(*passed, "through"));
  seen = fmt::format("{} from {}", text, who.pid);
  co_return {};
}

Task<Result<void>> unix_client(SimHost& host, std::string& heard) {
  CO_TRY(auto pair, host.network().pair());
  CO_TRY(StreamPtr stream, co_await dial(host, "unix:/run/x.sock"));
  std::vector<Handle> handles;
  handles.push_back(std::move(pair.theirs));
  const std::span<const Handle> passing = handles;
  const Bytes bytes = as_bytes("take this");
  CO_TRY_DO(co_await stream->write(bytes, passing));
  handles.clear();
  CO_TRY(heard, co_await read_to_end(*pair.ours));
  co_return {};
}

TEST_CASE("Unix streams know their peer and carry handles") {
  Simulator sim({.hosts = 1});
  std::string seen;
  std::string heard;
  sim.host(0).scope().spawn(unix_server(sim.host(0), seen));
  sim.run_for(1ms);
  REQUIRE(sim.run(unix_client(sim.host(0), heard), 1s));
  CHECK(seen == "take this from 1");
  CHECK(heard == "through");
  CHECK(sim.host(0).handles().size() == 0);
}

TEST_CASE("an idle connection costs less than 300 bytes for both ends") {
  CHECK(2 * (sizeof(SimStream) + 16) < 300);
}

}  // namespace
}  // namespace tutti
