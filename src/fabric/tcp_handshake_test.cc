#include "fabric/tcp_handshake.h"

#include <doctest/doctest.h>

#include "fabric/tcp_fixture_test.h"
#include "wire/faulty_stream.h"
#include "world/manual_clock.h"

namespace tutti::tcp {
namespace {

using wire::FaultyStream;

class CountingRandom final : public Random {
 public:
  explicit CountingRandom(uint64_t from) : next_(from) {}
  uint64_t next() override { return next_++; }
  void fill(MutableBytes bytes) override {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next());
  }

 private:
  uint64_t next_;
};

class Door final : public Doorkeeper {
 public:
  Result<void> admit(const Introduction& who) override {
    if (who.epoch == epoch) return {};
    return fail(Code::denied, "epoch {} is not ours", who.epoch);
  }
  uint64_t epoch = 7;
};

const Introduction kWho{
    .epoch = 7, .from = 3, .to = 5, .session = 11, .incarnation = 13, .streams = 4, .stream = 2};

// Both ends of a handshake over streams in memory.
struct Meeting {
  Executor executor;
  CountingRandom called_random{100};
  CountingRandom caller_random{9};
  FaultyStream::Pair pair = FaultyStream::make_pair();
  Door door;
  Scope scope{Scope::Root{}};
  std::optional<Result<Secrets>> caller;
  std::optional<Result<Welcome>> called;

  static Task<void> call(Meeting& self, JobKey key, Introduction who) {
    auto secrets = co_await introduce(*self.pair.first, self.caller_random, key, who);
    self.caller.emplace(std::move(secrets));
  }
  static Task<void> answer(Meeting& self) {
    auto welcomed = co_await welcome(*self.pair.second, self.called_random, test_key(), self.door);
    self.called.emplace(std::move(welcomed));
    if (!*self.called) (void)self.pair.second->shutdown_write();
  }
  static Task<void> say(Meeting& self, std::string text) {
    (void)co_await self.pair.first->write(as_bytes(text));
  }
  void start_answering() { scope.spawn(answer(*this)); }
  void start_calling(JobKey key, const Introduction& who) { scope.spawn(call(*this, key, who)); }
  void start_saying(std::string text) { scope.spawn(say(*this, std::move(text))); }
  void run() { executor.run_ready(); }
  size_t answered() { return pair.first->incoming().passed; }
};

TEST_CASE("two ends that know the key learn who calls, and share secrets") {
  Meeting meeting;
  meeting.start_answering();
  meeting.start_calling(test_key(), kWho);
  meeting.run();
  REQUIRE(meeting.caller->has_value());
  REQUIRE(meeting.called->has_value());
  const Welcome& welcome = **meeting.called;
  CHECK(welcome.who == kWho);
  CHECK(welcome.secrets.to_called == (*meeting.caller)->to_called);
  CHECK(welcome.secrets.to_caller == (*meeting.caller)->to_caller);
  CHECK(welcome.secrets.to_caller != welcome.secrets.to_called);
}

TEST_CASE("who has another key, or comes from another epoch, gets no answer") {
  for (const bool other_key : {true, false}) {
    Meeting meeting;
    meeting.start_answering();
    if (!other_key) meeting.door.epoch = 8;
    meeting.start_calling(test_key(other_key ? 2 : 1), kWho);
    meeting.run();
    CHECK(meeting.called->error().code() == Code::denied);
    CHECK(meeting.caller->error().code() == Code::unavailable);
    CHECK(meeting.answered() == 0);
  }
}

TEST_CASE("garbage gets no answer") {
  for (const std::string& garbage : {pattern(kHelloBytes, 1), std::string(300, '\0'),
                                     std::string("GET / HTTP/1.1\r\n") + pattern(200, 2)}) {
    Meeting meeting;
    meeting.start_answering();
    meeting.start_saying(garbage);
    meeting.run();
    CHECK(!meeting.called->has_value());
    CHECK(meeting.answered() == 0);
  }
}

TEST_CASE("no damaged bit of a hello is believed") {
  const Hello hello = make_hello(kWho, {}, test_key());
  REQUIRE(check_hello(hello, test_key()).value() == kWho);
  for (size_t bit = 0; bit < 8 * hello.size(); ++bit) {
    Hello damaged = hello;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CHECK(!check_hello(damaged, test_key()));
  }
}

TEST_CASE("a hello that was recorded gets no further than the answer") {
  const Hello hello = make_hello(kWho, {}, test_key());
  Meeting meeting;
  meeting.start_answering();
  meeting.start_saying(std::string(as_text(hello)) + pattern(kProofBytes, 5));
  meeting.run();
  CHECK(meeting.answered() == kAnswerBytes);
  CHECK(meeting.called->error().message() == "rank 3 did not prove itself: a hello said again");
}

TEST_CASE("an answer of somebody without the key is not believed") {
  Meeting meeting;
  meeting.start_calling(test_key(), kWho);
  const std::string lie = pattern(kAnswerBytes, 3);
  meeting.scope.spawn([](Meeting& self, const std::string& text) -> Task<void> {
    (void)co_await self.pair.second->write(as_bytes(text));
  }(meeting, lie));
  meeting.run();
  CHECK(meeting.caller->error().code() == Code::denied);
}

}  // namespace
}  // namespace tutti::tcp
