// What a coordinator makes of barriers and values.
#include "cluster/coordinator_test.h"

namespace tutti {
namespace {

constexpr uint64_t kFirstEpoch = epoch_of(1, 1);

// Eight workers on hosts 1 to 4, and a service beside them.
job::Spec workers(job::Strategy strategy = job::ONE_FOR_ALL) {
  job::Spec spec = spec_of({{.count = 8, .strategy = strategy},
                            {.name = "data", .kind = job::Role::SERVICE, .count = 1}});
  spec.set_strategy(job::ONE_FOR_ONE);
  return spec;
}

struct ExchangeBench : CoordinatorBench {
  explicit ExchangeBench(const job::Spec& spec) : CoordinatorBench(appointment_of(spec)) { obey(); }

  // Of their present gang, unless told otherwise; gives to whom releases went.
  std::string arrive(std::string_view processes, uint64_t round, uint64_t gang_epoch = 0,
                     uint64_t life = 0, bool ask = false) {
    cluster::Row row = row_of(cluster::Row::ARRIVED, life != 0 ? life : coordinator.epoch(),
                              set(processes), set("2"));
    row.set_message("step");
    row.set_round(round);
    row.set_gang_epoch(gang_epoch != 0 ? gang_epoch : last_directive.gang_epochs(0));
    row.set_ask(ask);
    report({row});
    return to(cluster::Message::kRelease);
  }
  cluster::Row value(uint32_t process, std::string key, std::string bytes, uint64_t serial = 1) {
    cluster::Row row =
        row_of(cluster::Row::VALUE, coordinator.epoch(), RangeSet(process), set("1"));
    row.set_message(std::move(key));
    row.set_value(std::move(bytes));
    row.set_round(serial);
    row.set_gang_epoch(last_directive.gang_epochs(process == 8 ? 1 : 0));
    return row;
  }
  // What was said of a put; "kept" or the refusal.
  std::string put(uint32_t process, std::string key, std::string bytes, uint64_t serial = 1) {
    report({value(process, std::move(key), std::move(bytes), serial)});
    const cluster::Release* told = release();
    if (told == nullptr || told->kept_size() != 1) return "nothing";
    return told->kept(0).refused().empty() ? "kept" : told->kept(0).refused();
  }
  std::string wanted(std::string key) {
    cluster::Row row = row_of(cluster::Row::WANTED, 0, {}, set("3"));
    row.set_message(std::move(key));
    report({row});
    return release() == nullptr ? "nothing" : release()->value();
  }
  const cluster::Release* release() const {
    for (const CoordinatorOrders::Parcel& parcel : orders.parcels)
      if (parcel.message.has_release()) return &parcel.message.release();
    return nullptr;
  }
};

TEST_CASE("a barrier opens when all of the role have come, and its next round is another") {
  ExchangeBench bench(workers());
  CHECK(bench.arrive("0-6", 0) == "");
  CHECK(bench.arrive("0-6", 0) == "");
  CHECK(bench.arrive("7", 0) == "1-4");
  CHECK(bench.release()->barrier() == "step");
  CHECK(bench.release()->rounds() == 1);
  CHECK(bench.arrive("0-6", 1) == "");
  CHECK(bench.arrive("3", 0) == "2");  // who did not hear of it asks again
  CHECK(bench.release()->rounds() == 1);
  CHECK(bench.arrive("7", 1) == "1-4");
  CHECK(bench.release()->rounds() == 2);
}

TEST_CASE("only who runs in the gang's present epoch, in its present life, arrives") {
  ExchangeBench bench(workers());
  CHECK(bench.arrive("0-6", 0) == "");
  CHECK(bench.arrive("7", 0, kFirstEpoch - 1) == "");
  CHECK(bench.arrive("7", 0, kFirstEpoch, kFirstEpoch - 1) == "");
  CHECK(bench.arrive("7", 0) == "1-4");
  CHECK(bench.arrive("0-6", 1) == "");
  bench.exited("3", job::KILLED);
  const uint64_t second = bench.coordinator.epoch();
  CHECK(bench.last_directive.gang_epochs(0) == second);
  CHECK(bench.last_directive.gang_epochs(1) == kFirstEpoch);
  CHECK(bench.arrive("7", 1, kFirstEpoch, kFirstEpoch) == "");
  CHECK(bench.arrive("0-7", 0) == "");  // none of them runs yet
  bench.obey();
  CHECK(bench.arrive("7", 0) == "");  // nobody waits from before
  CHECK(bench.arrive("0-6", 0) == "1-4");
}

TEST_CASE("survivors of a gang meet who was started again in the new epoch") {
  ExchangeBench bench(workers(job::ONE_FOR_ONE));
  CHECK(bench.arrive("0-2,4-7", 0) == "");
  bench.exited("3", job::KILLED);
  const uint64_t second = bench.last_directive.gang_epochs(0);
  CHECK(second == bench.coordinator.epoch());
  bench.obey();
  CHECK(bench.arrive("3", 0) == "");
  CHECK(bench.arrive("0-2,4-7", 0, kFirstEpoch, kFirstEpoch) == "");
  CHECK(bench.arrive("0-2,4-7", 0, second, kFirstEpoch) == "1-4");
}

TEST_CASE("the restart of another role ends nothing of what a gang exchanges") {
  ExchangeBench bench(workers());
  CHECK(bench.put(2, "key", "here") == "kept");
  CHECK(bench.put(8, "address", "there") == "kept");
  CHECK(bench.arrive("0-6", 0) == "");
  bench.exited("8", job::KILLED);
  CHECK(bench.last_directive.gang_epochs(0) == kFirstEpoch);
  CHECK(bench.wanted("key") == "here");
  CHECK(bench.wanted("address") == "nothing");
  CHECK(bench.arrive("7", 0, kFirstEpoch, kFirstEpoch) == "1-4");
}

TEST_CASE("who is missing is told to those who ask, and who will never come") {
  ExchangeBench bench(workers());
  CHECK(bench.arrive("0-2,5-7", 0) == "");
  CHECK(bench.arrive("0", 0, 0, 0, true) == "2");
  CHECK(set_from(bench.release()->missing()).value().text() == "3-4");
  CHECK(bench.release()->finished().empty());
  CHECK(bench.release()->rounds() == 0);
  bench.exited("4", job::NONE);
  CHECK(bench.arrive("0", 0, 0, 0, true) == "2");
  CHECK(set_from(bench.release()->finished()).value().text() == "4");
}

TEST_CASE("a value goes to the hosts that want it, whichever came first") {
  ExchangeBench bench(workers());
  CHECK(bench.wanted("key") == "nothing");
  bench.report({bench.value(0, "key", "here")});
  CHECK(bench.to(cluster::Message::kRelease) == "3; 1");
  CHECK(bench.release()->value() == "here");
  CHECK(bench.wanted("key") == "here");
  CHECK(bench.put(0, "key", "again", 2) == "kept");
  CHECK(bench.put(0, "key", "here", 1) == "kept");  // told again, late
  CHECK(bench.wanted("key") == "again");
}

TEST_CASE("a key is of who put it first, until the gang begins anew") {
  ExchangeBench bench(workers());
  CHECK(bench.put(0, "key", "here") == "kept");
  CHECK(bench.put(5, "key", "other") ==
        "'key' was put by rank 0 (process 0 of the job); only that one may put it again");
  bench.exited("3", job::KILLED);
  bench.obey();
  CHECK(bench.wanted("other key") == "nothing");
  CHECK(bench.put(5, "key", "there") == "kept");
  CHECK(bench.wanted("key") == "there");
}

TEST_CASE("keys and values have limits, which the refusal tells") {
  ExchangeBench bench(workers());
  const std::string large(1 << 20, 'v');
  for (int i = 0; i < 20; ++i) CHECK(bench.put(0, "same", large, 1 + i) == "kept");
  for (int i = 0; i < 14; ++i) CHECK(bench.put(0, fmt::format("key {}", i), large) == "kept");
  CHECK(bench.put(0, "last", large) ==
        "the keys and values of a job have at most 16777216 bytes together");
  CHECK(bench.put(0, "small", "v") == "kept");
}

TEST_CASE("whoever takes over decides nothing before all hosts have told what was") {
  cluster::Appointment appointment = appointment_of(workers(), 2, 2);
  CoordinatorBench bench(appointment);
  CHECK(bench.last_directive.gang_epochs().empty());
  const auto runs = [&](std::string_view processes, std::string_view hosts, uint64_t gang) {
    cluster::Row row = row_of(cluster::Row::STARTED, kFirstEpoch, set(processes), set(hosts));
    row.set_gang_epoch(gang);
    return row;
  };
  const auto arrived = [&](std::string_view processes, std::string_view hosts) {
    cluster::Row row = row_of(cluster::Row::ARRIVED, kFirstEpoch, set(processes), set(hosts));
    row.set_message("step");
    row.set_gang_epoch(kFirstEpoch);
    return row;
  };
  // Ranks 0 and 1 have passed the barrier at which the others wait: their host knows.
  cluster::Row open = row_of(cluster::Row::RELEASED, 0, set("0"));
  open.set_message("step");
  open.set_gang_epoch(kFirstEpoch);
  open.set_round(1);
  cluster::Row value = row_of(cluster::Row::VALUE, kFirstEpoch, set("1"), set("1"));
  value.set_message("key");
  value.set_value("here");
  value.set_gang_epoch(kFirstEpoch);
  value.set_count(1);
  value.set_round(1);
  bench.report({arrived("2-7", "2-4"), runs("2-7", "2-4", kFirstEpoch)});
  bench.confirm("2-4");
  CHECK(bench.to(cluster::Message::kRelease) == "");
  bench.report({runs("0-1", "1", kFirstEpoch), runs("8", "1", kFirstEpoch), open, value});
  bench.confirm("1");
  bench.report({arrived("2-7", "2-4")});
  REQUIRE(bench.to(cluster::Message::kRelease) == "2-4");
  CHECK(bench.orders.parcels.back().message.release().rounds() == 1);
  cluster::Row wanted = row_of(cluster::Row::WANTED, 0, {}, set("3"));
  wanted.set_message("key");
  bench.report({wanted});
  CHECK(bench.to(cluster::Message::kRelease) == "3");
  CHECK(bench.coordinator.record().gang_epochs(0) == kFirstEpoch);
}

TEST_CASE("hosts that missed the gang's last epoch are told of it by who takes over") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE), 2, 2));
  const auto runs = [&](std::string_view processes, std::string_view hosts, uint64_t epoch,
                        uint64_t gang) {
    cluster::Row row = row_of(cluster::Row::STARTED, epoch, set(processes), set(hosts));
    row.set_gang_epoch(gang);
    bench.report({row});
  };
  const uint64_t second = epoch_of(1, 2);
  runs("0-1,4-7", "1,3-4", kFirstEpoch, kFirstEpoch);
  runs("2", "2", kFirstEpoch, second);
  runs("3", "2", second, second);
  runs("8", "1", kFirstEpoch, kFirstEpoch);
  bench.confirm("1-4");
  CHECK(bench.directed() == "1-4");
  REQUIRE(bench.last_directive.gang_epochs_size() == 2);
  CHECK(bench.last_directive.gang_epochs(0) == second);
  CHECK(bench.last_directive.gang_epochs(1) == kFirstEpoch);
  CHECK(bench.start() == "");
}

}  // namespace
}  // namespace tutti
