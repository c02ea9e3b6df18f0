// As many connections to one server as the system allows, over real sockets.
#include <sys/resource.h>

#include "wire/memory_world.h"
#include "wire/server.h"
#include "wire/testing.h"
#include "world/real/real_world.h"

namespace tutti::wire {
namespace {

constexpr size_t kCrowd = 10'000;
constexpr size_t kSpare = 100;       // descriptors of everything else
constexpr size_t kAtOnce = 1000;     // connecting at a time: less than any backlog
constexpr Duration kAllowed = 2min;  // only a hang takes as long

// Both ends are ours: two descriptors each.
size_t crowd_allowed() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::min<size_t>(kCrowd, (limit.rlim_cur - kSpare) / 2);
}

struct Crowd {
  explicit Crowd(RealWorld& world) : world(world) {}
  RealWorld& world;
  TestService service{world.clock()};
  std::vector<std::unique_ptr<Stream>> silent;
  std::vector<std::unique_ptr<wire::Connection>> speaking;
  size_t answered = 0;
  size_t ended = 0;
};

Task<Result<void>> stand_silent(Crowd& crowd, Address address) {
  auto stream = co_await crowd.world.network().connect(address);
  if (!stream) co_return fail(stream.error());
  crowd.silent.push_back(std::move(*stream));
  co_return {};
}

Task<Result<void>> speak(Crowd& crowd, Address address) {
  auto stream = co_await crowd.world.network().connect(address);
  if (!stream) co_return fail(stream.error());
  ConnectionOptions options{.self = {"c", Role::user, "ann"},
                            .limits = {.hello_timeout = kAllowed}};
  std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
  auto greeted =
      co_await wire::Connection::greet(crowd.world.clock(), std::move(*stream), std::move(seal),
                                       Side::connecting, nullptr, std::move(options));
  if (!greeted) co_return fail(greeted.error());
  crowd.speaking.push_back(std::move(*greeted));
  co_return {};
}

Task<void> run_speaker(Crowd& crowd, wire::Connection& connection) {
  auto ended = co_await connection.run();
  static_cast<void>(ended);  // those the deadline met were cut off
  ++crowd.ended;
}

Task<void> call_once(Crowd& crowd, wire::Connection& connection) {
  const Blob request = blob_of("hello");
  auto reply = co_await connection.call(kEcho, request);
  if (reply) ++crowd.answered;
}

Task<Result<void>> gather(Crowd& crowd, Address address, size_t count) {
  for (size_t i = 0; i < count; i += kAtOnce) {
    Scope scope;
    for (size_t j = i; j < std::min(count, i + kAtOnce); ++j) {
      if (j % 2 == 0)
        scope.spawn(stand_silent(crowd, address));
      else
        scope.spawn(speak(crowd, address));
    }
    auto joined = co_await scope.join();
    if (!joined) co_return joined;
  }
  co_return {};
}

Task<Result<void>> serve_crowd(Crowd& crowd, size_t count) {
  Clock& clock = crowd.world.clock();
  const Address anywhere = Address::tcp("127.0.0.1", 0);
  auto listener = co_await crowd.world.network().listen(anywhere);
  if (!listener) co_return fail(listener.error());
  const ConnectionOptions options{.self = {"c", Role::agent, "node7"},
                                  .limits = {.hello_timeout = kAllowed}};
  Server server(clock, crowd.service.methods,
                []() -> Result<std::unique_ptr<Seal>> { return std::make_unique<PlainSeal>(); },
                {.connection = options, .max_greeting = kCrowd});
  Scope scope;
  scope.spawn(server.serve(**listener));
  auto gathered = co_await gather(crowd, (*listener)->address(), count);
  if (gathered) {
    for (const auto& connection : crowd.speaking) scope.spawn(run_speaker(crowd, *connection));
    Scope calls;
    for (const auto& connection : crowd.speaking) calls.spawn(call_once(crowd, *connection));
    auto called = co_await calls.join();
    CHECK(called.has_value());
    CHECK(server.connections() == crowd.speaking.size());
    CHECK(server.greeting() == crowd.silent.size());
  }
  server.stop(clock.now() + 1s);
  auto joined = co_await scope.join();
  CHECK(server.connections() + server.greeting() == 0);
  co_return gathered ? std::move(joined) : std::move(gathered);
}

TEST_CASE("thousands of connections, half of them silent, are served and stopped in time") {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const size_t count = crowd_allowed();
  {
    const LogLines log;
    RealWorld world;
    Crowd crowd(world);
    auto work = serve_crowd(crowd, count);
    const Instant by = world.clock().now() + kAllowed;
    auto served = world.run(with_deadline(world.clock(), by, std::move(work)));
    CHECK_MESSAGE(served.has_value(), (served ? "" : served.error().text()));
    CHECK(crowd.answered == count / 2);
    CHECK(crowd.ended == count / 2);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace tutti::wire
