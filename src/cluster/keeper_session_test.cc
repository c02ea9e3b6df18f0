#include "cluster/keeper_session.h"

#include <doctest/doctest.h>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr const char* kPath = "/keeper";

struct Owner final : KeeperUser {
  std::string gone;
  void on_keeper_frame(KeeperFrame) override {}
  void on_keeper_gone(const Error& why) override { gone = why.text(); }
  KeeperOwes keeper_owes() const override { return owes; }
  void on_keeper_silent() override { ++silences; }
  KeeperOwes owes = KeeperOwes::nothing;
  int silences = 0;
};

struct Meeting {
  Owner owner;
  std::unique_ptr<Stream> deaf;  // the keeper's end, which nobody reads
  std::unique_ptr<KeeperSession> session;
};

Task<Result<void>> meet(SimHost& host, Meeting& meeting) {
  Address address = Address::unix_socket(kPath);
  CO_TRY(auto listener, co_await host.network().listen(address));
  CO_TRY(auto stream, co_await host.network().connect(address));
  CO_TRY(meeting.deaf, co_await listener->accept());
  meeting.session = std::make_unique<KeeperSession>(
      host, std::make_unique<KeeperStream>(std::move(stream)), nullptr, kPath);
  meeting.session->set_user(&meeting.owner);
  meeting.session->start([] {});
  co_return {};
}

TEST_CASE("what waits for a keeper that does not read is bounded, and then it is given up") {
  Simulator sim({.hosts = 1});
  Meeting meeting;
  sim.set_program([&](SimHost& host) { return meet(host, meeting); });
  sim.start_all();
  sim.run_for(1s);
  REQUIRE(meeting.session != nullptr);
  keeper::Spawn large;
  large.add_arguments(std::string(kMaxKeeperMessage - 100, 'x'));
  for (size_t i = 0; i < kMaxKeeperOutbox / kMaxKeeperMessage; ++i)
    meeting.session->send(KeeperMessage::spawn, large);
  sim.run_for(1s);
  CHECK(meeting.owner.gone.empty());
  for (int i = 0; i < 10; ++i) meeting.session->send(KeeperMessage::spawn, large);
  // Not in the middle of what its user does.
  CHECK_FALSE(meeting.session->gone());
  sim.run_for(1s);
  CHECK(meeting.session->gone());
  CHECK(meeting.owner.gone.find("did not read") != std::string::npos);
  CHECK(meeting.session->over());
}

// Speaks until it is told to be quiet.
Task<void> speak(KeeperStream& stream, const bool& quiet) {
  while (true) {
    auto frame = co_await stream.receive();
    if (!frame) co_return;
    if (quiet) continue;
    if (frame->kind == KeeperMessage::hello) {
      keeper::Welcome welcome;
      welcome.set_version(kHighestKeeperVersion);
      (void)co_await stream.send(KeeperMessage::welcome, welcome);
    } else if (frame->kind == KeeperMessage::signal) {
      const keeper::Signalled signalled;
      (void)co_await stream.send(KeeperMessage::signalled, signalled);
    }
  }
}

struct Speaker {
  bool quiet = false;
  std::unique_ptr<KeeperStream> stream;
};

// After half a second, a session with a keeper that answers.
void begin(Simulator& sim, Meeting& meeting, Speaker& keeper) {
  sim.set_program([&](SimHost& host) { return meet(host, meeting); });
  sim.start_all();
  sim.run_for(500ms);
  REQUIRE(meeting.session != nullptr);
  keeper.stream = std::make_unique<KeeperStream>(std::move(meeting.deaf));
  sim.host(0).scope().spawn(speak(*keeper.stream, keeper.quiet));
}

void end(Simulator& sim, Meeting& meeting) {
  meeting.session->leave();
  sim.run_for(1s);
  meeting.session.reset();
  sim.run_for(1s);
}

TEST_CASE("a keeper that owes an end and says nothing for long is ended from outside") {
  for (const KeeperOwes owes : {KeeperOwes::stop, KeeperOwes::end}) {
    Simulator sim({.hosts = 1});
    Speaker keeper;
    Meeting meeting;
    begin(sim, meeting, keeper);
    meeting.owner.owes = owes;
    meeting.session->send(KeeperMessage::end, keeper::End());
    sim.run_for(1h);
    CHECK_FALSE(meeting.session->gone());  // it takes its time, but it is there
    CHECK(meeting.session->is_heard());
    keeper.quiet = true;
    sim.run_for(25s);
    CHECK_FALSE(meeting.session->gone());
    sim.run_for(10s);
    CHECK(meeting.session->gone());
    CHECK(meeting.owner.gone.find("did not answer, and was killed") != std::string::npos);
    end(sim, meeting);
  }
}

TEST_CASE("a keeper that owes only an answer is waited for, and told once until it speaks") {
  Simulator sim({.hosts = 1});
  Speaker keeper;
  Meeting meeting;
  begin(sim, meeting, keeper);
  meeting.owner.owes = KeeperOwes::answer;
  meeting.session->send(KeeperMessage::spawn, keeper::Spawn());
  sim.run_for(5s);
  keeper.quiet = true;
  sim.run_for(25s);
  CHECK(meeting.owner.silences == 0);
  sim.run_for(1h);
  CHECK(meeting.owner.silences == 1);
  CHECK_FALSE(meeting.session->is_heard());
  // An end has all the time anew.
  meeting.owner.owes = KeeperOwes::end;
  sim.run_for(25s);
  CHECK_FALSE(meeting.session->gone());
  sim.run_for(10s);
  CHECK(meeting.session->gone());
  end(sim, meeting);
}

TEST_CASE("a keeper is not silent while its agent does not run") {
  Simulator sim({.hosts = 1});
  Speaker keeper;
  Meeting meeting;
  begin(sim, meeting, keeper);
  meeting.owner.owes = KeeperOwes::end;
  meeting.session->send(KeeperMessage::end, keeper::End());
  sim.run_for(5s);
  keeper.quiet = true;
  for (int i = 0; i < 5; ++i) {
    sim.run_for(5s);
    sim.pause(0);
    sim.run_for(1min);
    sim.resume(0);
    CHECK_FALSE(meeting.session->is_heard());
    meeting.session->give_up_after(10);
    CHECK_FALSE(meeting.session->gone());
  }
  sim.run_for(25s);
  CHECK_FALSE(meeting.session->gone());
  sim.run_for(10s);
  CHECK(meeting.session->gone());
  end(sim, meeting);
}

TEST_CASE("a keeper of which nothing is expected may be quiet") {
  Simulator sim({.hosts = 1});
  Speaker keeper;
  Meeting meeting;
  begin(sim, meeting, keeper);
  sim.run_for(5s);
  keeper.quiet = true;
  sim.run_for(1h);
  CHECK_FALSE(meeting.session->gone());
  end(sim, meeting);
}

}  // namespace
}  // namespace tutti
