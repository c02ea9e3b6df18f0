// Coordinators whose job has hosts that said that they come back.
#include "cluster/coordinator_test.h"

namespace tutti {
namespace {

constexpr uint64_t kFirstEpoch = epoch_of(1, 1);

TEST_CASE("a second coordinator waits for hosts that are away as they said") {
  const job::Spec spec = spec_of({{.count = 8}});
  CoordinatorBench bench(appointment_of(spec, 2, 2));
  bench.coordinator.set_away(set("2"));
  bench.started("0-1,4-7", kFirstEpoch);
  bench.confirm("1,3-4");
  for (int i = 0; i < 100; ++i) bench.wait(1s);
  CHECK(bench.state() == cluster::STARTING);
  bench.started("2-3", kFirstEpoch);
  bench.confirm("2");
  CHECK(bench.state() == cluster::RUNNING);
  CHECK(bench.stop() == "");
}

TEST_CASE("who is away is not waited for when another is silent anyway") {
  const job::Spec spec = spec_of({{.count = 8}});
  CoordinatorBench bench(appointment_of(spec, 2, 2));
  bench.coordinator.set_away(set("2"));
  bench.started("0-1,6-7", kFirstEpoch);
  bench.confirm("1,4");
  for (int i = 0; i < 100; ++i) bench.wait(1s);
  CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
  CHECK(bench.wanted() == "2-5");
}

TEST_CASE("a job that is ended while its hosts are asked does not wait for those that are gone") {
  const job::Spec spec = spec_of({{.count = 8}});
  cluster::Appointment appointment = appointment_of(spec, 2, 2);
  set_pairs(set("2"), appointment.mutable_lost());
  CoordinatorBench bench(appointment);
  bench.started("0-1", kFirstEpoch);
  bench.request_end(1s);
  CHECK(bench.told_to_end() == "1,3-4");
  bench.ended("1,3-4");
  CHECK(bench.state() == cluster::KILLED_BY_USER);
  CHECK(set_from(bench.last_update.silent()).value().text() == "2");
}

TEST_CASE("a host that was away and is not waited for any more is lost") {
  const job::Spec spec = spec_of({{.count = 8}});
  CoordinatorBench bench(appointment_of(spec, 2, 2));
  bench.coordinator.set_away(set("2"));
  bench.started("0-1,4-7", kFirstEpoch);
  bench.confirm("1,3-4");
  for (int i = 0; i < 10; ++i) bench.wait(1s);
  bench.coordinator.set_away({});
  bench.lost("2");
  CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
  CHECK(bench.wanted() == "2-3");
}

}  // namespace
}  // namespace tutti
