#include "cluster/exchange_wire.h"

#include <doctest/doctest.h>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

// What comes out at the other end of a connection into which these bytes were written.
struct Pipe {
  ~Pipe() { host.scope().kill(); }

  template <class T>
  static Task<void> receive(Stream& stream, Task<Result<T>> (*read)(Stream&),
                            std::optional<Result<T>>& into) {
    auto got = co_await read(stream);
    into.emplace(std::move(got));
  }
  static Task<void> send(Stream& stream, std::string bytes) {
    const Bytes all = as_bytes(bytes);
    (void)co_await stream.write(all);
    (void)stream.shutdown_write();
  }
  template <class T>
  Result<T> through(std::string bytes, Task<Result<T>> (*read)(Stream&)) {
    auto pair = host.network().pair().value();
    const auto theirs = host.network().adopt(std::move(pair.theirs)).value();
    std::optional<Result<T>> got;
    host.scope().spawn(send(*pair.ours, std::move(bytes)));
    host.scope().spawn(receive(*theirs, read, got));
    sim.run_for(1s);
    REQUIRE(got.has_value());
    return std::move(*got);
  }

  Simulator sim{{.seed = 1, .hosts = 1}};
  SimHost& host = sim.host(0);
};

ExchangeRequest some_request() {
  ExchangeRequest request{.op = ExchangeRequest::Op::put, .job = 7, .life = 8, .gang_epoch = 9};
  request.round = 10;
  request.timeout_ns = 11;
  request.process = 12;
  request.name = "key";
  request.value = std::string("a\0b", 3);
  return request;
}

TEST_CASE("requests and answers arrive as they were sent") {
  Pipe pipe;
  const auto request = pipe.through(encode(some_request()), read_request);
  REQUIRE(request.has_value());
  CHECK(encode(*request) == encode(some_request()));
  CHECK(request->value == some_request().value);
  const ExchangeAnswer refused{
      .ok = false, .code = Code::denied, .gang_epoch = 3, .message = "no", .value = "v"};
  const auto answer = pipe.through(encode(refused), read_answer);
  REQUIRE(answer.has_value());
  CHECK(!answer->ok);
  CHECK(answer->code == Code::denied);
  CHECK(answer->gang_epoch == 3);
  CHECK(answer->message == "no");
  CHECK(answer->value == "v");
}

TEST_CASE("what is too large, cut off or of somebody else is refused before it is read") {
  Pipe pipe;
  const auto told = [&](const std::string& bytes) {
    const auto got = pipe.through(bytes, read_request);
    return got ? "taken" : got.error().message();
  };
  ExchangeRequest request = some_request();
  request.name = std::string(kMaxExchangeName + 1, 'k');
  CHECK(told(encode(request)) == "a name or key has 1 to 256 bytes, not 257");
  request = some_request();
  request.name.clear();
  CHECK(told(encode(request)) == "a name or key has 1 to 256 bytes, not 0");
  request = some_request();
  request.value = std::string(kMaxExchangeValue + 1, 'v');
  CHECK(told(encode(request)) ==
        "a value has at most 65536 bytes, not 65537; put larger things in files");
  const std::string good = encode(some_request());
  CHECK(told(good.substr(0, good.size() - 1)) == "the other end has gone away");
  std::string other = good;
  other[0] = 'X';
  CHECK(told(other) == "this is no request of the exchange");
  other = good;
  other[4] = 9;
  CHECK(told(other) == "version 9 of the exchange is asked for, 1 is spoken here");
  other = good;
  other[6] = 6;
  CHECK(told(other) == "the exchange has no operation 6");
}

}  // namespace
}  // namespace tutti
