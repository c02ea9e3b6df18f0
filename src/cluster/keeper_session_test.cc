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
      std::make_unique<KeeperStream>(std::move(stream)), nullptr, kPath);
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
  CHECK(meeting.owner.gone.find("does not read") != std::string::npos);
  CHECK(meeting.session->over());
}

}  // namespace
}  // namespace tutti
