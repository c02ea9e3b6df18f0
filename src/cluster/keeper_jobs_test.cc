// What a keeper does for a job: control pages, spares, single ranks, and one job after the other.
#include "cluster/keeper_test.h"

namespace tutti {
namespace {

constexpr uint64_t kEpoch = uint64_t{3} << 32 | 1;

Task<keeper::Exited::Rank> next_exit(Kept& kept) {
  auto exit = co_await kept.client->next_exit();
  REQUIRE_OK(exit);
  co_return *exit;
}

// An arena for that many pages, mapped.
Task<std::unique_ptr<ControlPages>> make_pages(Kept& kept, uint32_t count) {
  auto arena = co_await kept.client->create_arena("pages", count * kControlPageBytes);
  REQUIRE_OK(arena);
  auto pages = ControlPages::open(kept.world, arena->handle);
  REQUIRE_OK(pages);
  co_return std::move(*pages);
}

keeper::Spawn with_pages(keeper::Spawn spawn) {
  spawn.set_control_arena("pages");
  spawn.set_epoch(kEpoch);
  for (keeper::Spawn::Rank& rank : *spawn.mutable_ranks())
    if (!rank.spare()) rank.set_control_offset(rank.rank() * kControlPageBytes);
  return spawn;
}

Task<void> start(Kept& kept, keeper::Spawn spawn) {
  const auto wanted = static_cast<size_t>(spawn.ranks_size());
  auto spawned = co_await kept.client->spawn(std::move(spawn));
  REQUIRE_OK(spawned);
  CHECK(spawned->size() == wanted);
}

Task<void> kill_rank(Kept& kept, uint32_t rank) {
  keeper::Signal signal;
  signal.add_ranks(rank);
  signal.set_number(SIGKILL);
  auto reached = co_await kept.client->signal(std::move(signal));
  REQUIRE_OK(reached);
  CHECK(*reached == 1);
}

// ---- Control pages. ----

Task<void> death_in_pages(Kept& kept) {
  auto pages = co_await make_pages(kept, 4);
  keeper::Spawn spawn = with_pages(gang(kept, "sleep", 3));
  co_await start(kept, std::move(spawn));
  CHECK(tutti_control_epoch(pages->find(0)) == kEpoch);
  CHECK(pages->find(2 * kControlPageBytes)->rank == 2);
  CHECK(pages->find(3 * kControlPageBytes) == nullptr);
  const uint32_t word = tutti_control_word(pages->find(0));
  co_await kill_rank(kept, 1);
  const auto exit = co_await next_exit(kept);
  CHECK(exit.rank() == 1);
  for (const uint64_t other : {0, 2}) {
    const tutti_control_page& page = *pages->find(other * kControlPageBytes);
    CHECK(read_dead(page) == RankRanges{{1, 1}});
    CHECK(tutti_control_aborted(&page, kEpoch));
    CHECK(!tutti_control_aborted(&page, kEpoch + 1));
  }
  CHECK(tutti_control_word(pages->find(0)) != word);
  CHECK(read_dead(*pages->find(kControlPageBytes)).empty());
}

TEST_CASE("when a controller hears of a death, it is in the pages of the other ranks") {
  in_both_worlds(death_in_pages);
}

// As an agent does when a newer epoch replaces a rank that runs.
Task<void> death_after_its_epoch(Kept& kept) {
  auto pages = co_await make_pages(kept, 3);
  co_await start(kept, with_pages(gang(kept, "sleep", 3)));
  const ControlChange next{
      .epoch = kEpoch + 1, .ends_older = true, .leaving = {{1, 1}}, .clear = true};
  CHECK(pages->apply(next).empty());
  co_await kill_rank(kept, 1);
  (void)co_await next_exit(kept);
  for (const uint64_t other : {0, 2}) {
    const tutti_control_page& page = *pages->find(other * kControlPageBytes);
    CHECK(read_dead(page).empty());
    CHECK(!tutti_control_aborted(&page, kEpoch + 1));
  }
  co_await kill_rank(kept, 2);
  (void)co_await next_exit(kept);
  CHECK(read_dead(*pages->find(0)) == RankRanges{{2, 2}});
  CHECK(tutti_control_aborted(pages->find(0), kEpoch + 1));
}

TEST_CASE("who is replaced in a newer epoch does not end that by its own end") {
  in_both_worlds(death_after_its_epoch);
}

Task<void> clean_exit(Kept& kept) {
  auto pages = co_await make_pages(kept, 2);
  keeper::Spawn spawn = with_pages(gang(kept, "exit", 2));
  spawn.mutable_ranks(0)->add_environment("CODE=0");
  spawn.mutable_ranks(1)->add_environment("CODE=0");
  co_await start(kept, std::move(spawn));
  for (int i = 0; i < 2; ++i) {
    const auto exit = co_await next_exit(kept);
    CHECK(exit.code() == 0);
  }
  CHECK(pages->dead().empty());
  CHECK(!tutti_control_aborted(pages->find(0), kEpoch));
  // A code other than 0 is a death.
  auto acknowledged = co_await kept.client->acknowledge(2);
  CHECK(acknowledged.has_value());
  keeper::Spawn again = with_pages(gang(kept, "exit", 2));
  again.mutable_ranks(0)->add_environment("CODE=0");
  again.mutable_ranks(1)->add_environment("CODE=3");
  co_await start(kept, std::move(again));
  for (int i = 0; i < 2; ++i) (void)co_await next_exit(kept);
  CHECK(read_dead(*pages->find(0)) == RankRanges{{1, 1}});
}

TEST_CASE("a rank that returns 0 is not dead, one that returns another code is") {
  in_both_worlds(clean_exit);
}

// A program that a rank executes, or a thread that ends, breaks the line of a rank that lives.
Task<void> broken_line(Kept& kept) {
  auto pages = co_await make_pages(kept, 2);
  keeper::Spawn spawn = with_pages(gang(kept, "sleep", 2));
  co_await start(kept, std::move(spawn));
  // Found anew each time: others let the pages rest.
  const auto line = [&pages]() -> std::atomic<uint32_t>& {
    return reinterpret_cast<std::atomic<uint32_t>&>(pages->find(kControlPageBytes)->lifeline);
  };
  for (const uint32_t held : {0x80000007U, TUTTI_CONTROL_LIFELINE_BROKEN, 0U, 0x80000008U,
                              TUTTI_CONTROL_LIFELINE_BROKEN | 0x80000000U}) {
    line() = held;
    kept.world.memory().wake_all(line());
    (void)co_await kept.world.clock().sleep(1ms);
  }
  CHECK(pages->dead().empty());
  CHECK(line() != TUTTI_CONTROL_LIFELINE_ENDED);
  co_await kill_rank(kept, 1);
  (void)co_await next_exit(kept);
  CHECK(read_dead(*pages->find(0)) == RankRanges{{1, 1}});
  while (line() != TUTTI_CONTROL_LIFELINE_ENDED) (void)co_await kept.world.clock().sleep(1ms);
}

TEST_CASE("a lifeline that breaks while its rank lives is nobody's death") {
  in_both_worlds(broken_line);
}

Task<void> busy_page(Kept& kept) {
  auto pages = co_await make_pages(kept, 3);
  keeper::Spawn spawn = with_pages(gang(kept, "sleep", 3));
  co_await start(kept, std::move(spawn));
  tutti_control_page& page = *pages->find(0);
  __atomic_store_n(&page.sequence, 1, __ATOMIC_RELEASE);  // an agent died holding it
  co_await kill_rank(kept, 1);
  (void)co_await next_exit(kept);
  CHECK(tutti_control_aborted(&page, kEpoch));
  while (read_dead(page).empty()) (void)co_await kept.world.clock().sleep(10ms);
  CHECK(read_dead(page) == RankRanges{{1, 1}});
  CHECK(page.dead_truncated != 0);
}

TEST_CASE("a page that a dead agent holds gets its dead all the same") {
  in_both_worlds(busy_page);
}

Task<void> refuse(Kept& kept, keeper::Spawn spawn, Code code) {
  auto answer = co_await kept.client->spawn(std::move(spawn));
  REQUIRE(!answer.has_value());
  CHECK(static_cast<int>(answer.error().code()) == static_cast<int>(code));
}

Task<void> wrong_pages(Kept& kept) {
  auto pages = co_await make_pages(kept, 2);
  keeper::Spawn spawn = with_pages(gang(kept, "sleep", 2));
  keeper::Spawn wrong = spawn;
  wrong.set_control_arena("never made");
  co_await refuse(kept, wrong, Code::not_found);
  wrong = spawn;
  wrong.clear_control_arena();
  co_await refuse(kept, wrong, Code::invalid);
  wrong = spawn;
  wrong.mutable_ranks(1)->set_control_offset(0);
  co_await refuse(kept, wrong, Code::invalid);
  wrong = spawn;
  wrong.mutable_ranks(1)->set_control_offset(2 * kControlPageBytes);
  co_await refuse(kept, wrong, Code::invalid);
  CHECK(pages->find(0) == nullptr);  // that of rank 0, which was started and killed again
  wrong = spawn;
  wrong.mutable_ranks(1)->set_spare(true);
  co_await refuse(kept, wrong, Code::invalid);
  co_await start(kept, spawn);
  auto dropped = co_await kept.client->drop_arena("pages");
  CHECK(dropped.error().code() == Code::invalid);
  wrong = gang(kept, "sleep", 1);
  wrong.set_control_arena("pages");
  wrong.mutable_ranks(0)->set_rank(7);
  wrong.mutable_ranks(0)->set_control_offset(kControlPageBytes);
  co_await refuse(kept, wrong, Code::exists);
}

TEST_CASE("pages that cannot be are refused, and no rank is started") {
  in_both_worlds(wrong_pages);
}

// ---- Single ranks. ----

Task<void> one_ended(Kept& kept) {
  co_await start(kept, gang(kept, "stubborn", 3));
  keeper::End end;
  end.add_ranks(1);
  end.set_grace_ns(to_ns(100ms));
  auto told = co_await kept.client->end(end);
  CHECK(told.has_value());
  const auto exit = co_await next_exit(kept);
  CHECK(exit.rank() == 1);
  // A shell that has not got to its trap yet ends when asked.
  CHECK((exit.signal() == SIGKILL || (!kept.simulated && exit.signal() == SIGTERM)));
  auto things = co_await kept.client->list();
  REQUIRE_OK(things);
  REQUIRE(things->ranks.size() == 3);
  for (const KeptRank& rank : things->ranks) CHECK(rank.ended == (rank.rank == 1));
}

TEST_CASE("one rank is ended with its grace while the others live") { in_both_worlds(one_ended); }

// The grace of the old rank ends while the new one of the same number runs.
Task<void> restarted(Kept& kept) {
  keeper::Spawn spawn = gang(kept, "sleep", 2);
  co_await start(kept, spawn);
  keeper::End end;
  end.add_ranks(1);
  end.set_grace_ns(to_ns(300ms));
  auto told = co_await kept.client->end(end);
  CHECK(told.has_value());
  const auto exit = co_await next_exit(kept);
  CHECK(exit.signal() == SIGTERM);
  keeper::Spawn again = spawn;
  again.mutable_ranks()->DeleteSubrange(0, 1);
  auto refused = co_await kept.client->spawn(again);
  CHECK(refused.error().code() == Code::exists);
  auto acknowledged = co_await kept.client->acknowledge(exit.sequence());
  CHECK(acknowledged.has_value());
  co_await start(kept, again);
  (void)co_await kept.world.clock().sleep(600ms);
  auto things = co_await kept.client->list();
  REQUIRE_OK(things);
  REQUIRE(things->ranks.size() == 2);
  CHECK(!things->ranks[1].ended);
}

TEST_CASE("a rank is started again once its exit was acknowledged, and has a life of its own") {
  in_both_worlds(restarted);
}

// ---- Spares. ----

keeper::Spawn spares(const Kept& kept, uint32_t count) {
  keeper::Spawn spawn = gang(kept, "spare", count);
  for (keeper::Spawn::Rank& rank : *spawn.mutable_ranks()) rank.set_spare(true);
  return spawn;
}

keeper::Assign assignment(uint32_t spare, uint32_t rank) {
  keeper::Assign assign;
  assign.set_spare(spare);
  assign.set_rank(rank);
  assign.add_environment("CODE=6");
  return assign;
}

Task<void> spare_assigned(Kept& kept) {
  auto pages = co_await make_pages(kept, 8);
  keeper::Spawn spawn = spares(kept, 2);
  spawn.add_ranks()->set_rank(0);  // a rank beside spares of the same number
  spawn = with_pages(std::move(spawn));
  co_await start(kept, std::move(spawn));
  keeper::Assign assign = assignment(1, 5);
  assign.set_control_offset(5 * kControlPageBytes);
  assign.set_epoch(kEpoch + 1);
  assign.add_arguments("--fast");
  auto assigned = co_await kept.client->assign(std::move(assign));
  REQUIRE_OK(assigned);
  const auto exit = co_await next_exit(kept);
  CHECK(exit.rank() == 5);
  CHECK(!exit.spare());
  CHECK(exit.code() == 6);
  CHECK(pages->find(5 * kControlPageBytes)->rank == 5);
  CHECK(tutti_control_epoch(pages->find(5 * kControlPageBytes)) == kEpoch + 1);
  CHECK(read_dead(*pages->find(0)) == RankRanges{{5, 5}});
  auto things = co_await kept.client->list();
  REQUIRE_OK(things);
  REQUIRE(things->ranks.size() == 3);
  CHECK(things->ranks[1].rank == 5);
  CHECK(things->ranks[1].control_offset == 5 * kControlPageBytes);
  CHECK(things->ranks[2].spare);
  CHECK(things->ranks[2].rank == 0);
}

TEST_CASE("a spare becomes a rank, with its page, and its exit is the rank's") {
  in_both_worlds(spare_assigned);
}

Task<void> refuse(Kept& kept, keeper::Assign assign, Code code) {
  auto answer = co_await kept.client->assign(std::move(assign));
  REQUIRE(!answer.has_value());
  CHECK(static_cast<int>(answer.error().code()) == static_cast<int>(code));
}

Task<void> wrong_assignments(Kept& kept) {
  keeper::Spawn spawn = spares(kept, 2);
  spawn.add_ranks()->set_rank(3);
  co_await start(kept, std::move(spawn));
  co_await refuse(kept, assignment(7, 1), Code::not_found);
  co_await refuse(kept, assignment(0, 3), Code::exists);
  keeper::Assign wrong = assignment(0, 1);
  wrong.add_arguments("");
  co_await refuse(kept, wrong, Code::invalid);
  wrong = assignment(0, 1);
  wrong.add_environment("no setting");
  co_await refuse(kept, wrong, Code::invalid);
  wrong = assignment(0, 1);
  wrong.add_environment("A=" + std::string(kMaxAssignment, 'x'));
  co_await refuse(kept, wrong, Code::invalid);
  wrong = assignment(0, 1);
  wrong.set_control_offset(0);
  co_await refuse(kept, wrong, Code::invalid);
  keeper::Signal signal;
  signal.add_spares(0);
  signal.set_number(SIGKILL);
  auto reached = co_await kept.client->signal(std::move(signal));
  CHECK(*reached == 1);
  const auto exit = co_await next_exit(kept);
  CHECK(exit.spare());
  CHECK(exit.rank() == 0);
  co_await refuse(kept, assignment(0, 1), Code::unavailable);
  auto good = co_await kept.client->assign(assignment(1, 1));
  CHECK(good.has_value());
}

TEST_CASE("assignments that cannot be are refused, and the spare waits on") {
  in_both_worlds(wrong_assignments);
}

// The spare is killed some time before, while or after it is assigned. Whatever the answer, the
// exit says the same.
Task<void> race(Kept& kept) {
  Duration delay = 0us;
  for (uint32_t round = 1; round <= 40; ++round, delay += 1us) {
    keeper::Spawn spawn = spares(kept, 1);
    spawn.add_environment("STAY=1");
    co_await start(kept, std::move(spawn));
    keeper::Signal signal;
    signal.add_spares(0);
    signal.set_number(SIGKILL);
    auto reached = co_await kept.client->signal(std::move(signal));
    CHECK(reached.has_value());
    (void)co_await kept.world.clock().sleep(delay);
    auto assigned = co_await kept.client->assign(assignment(0, round));
    const auto exit = co_await next_exit(kept);
    CHECK(exit.spare() == !assigned.has_value());
    CHECK(exit.rank() == (assigned ? round : 0));
    CHECK(exit.signal() == SIGKILL);
    auto acknowledged = co_await kept.client->acknowledge(exit.sequence());
    CHECK(acknowledged.has_value());
  }
  auto things = co_await kept.client->list();
  CHECK(things->ranks.empty());
}

TEST_CASE("an assignment that races with its spare's death is a rank's death or a spare's") {
  in_both_worlds(race);
}

// ---- One job after the other. ----

Task<void> reset_twice(Kept& kept) {
  pid_t before = 0;
  for (int round = 0; round < 3; ++round) {
    auto pages = co_await make_pages(kept, 3);
    keeper::Spawn spawn = with_pages(gang(kept, "stubborn", 3));
    auto spawned = co_await kept.client->spawn(std::move(spawn));
    REQUIRE_OK(spawned);
    CHECK(spawned->front().pid != std::exchange(before, spawned->front().pid));
    keeper::End end;  // its grace must not reach into the next job
    end.set_grace_ns(to_ns(1000h));
    auto told = co_await kept.client->end(end);
    CHECK(told.has_value());
    auto reset = co_await kept.client->reset();
    REQUIRE_OK(reset);
    CHECK(kept.world.processes().descendants()->empty());
    auto things = co_await kept.client->list();
    REQUIRE_OK(things);
    CHECK(things->ranks.empty());
    CHECK(things->arenas.empty());
    (void)kept.client->take_exits();
  }
}

// The next frame of that kind; others are passed over.
Task<KeeperFrame> next_frame(KeeperStream& stream, KeeperMessage kind) {
  while (true) {
    auto frame = co_await stream.receive();
    REQUIRE_OK(frame);
    if (frame->kind == kind) co_return std::move(*frame);
  }
}

Task<void> exits_with_and_without_rest(Kept& kept) {
  Address address = Address::unix_socket(kept.path);
  auto connected = co_await kept.world.network().connect(std::move(address));
  REQUIRE_OK(connected);
  KeeperStream stream(std::move(*connected));
  auto greeted = co_await stream.send(KeeperMessage::hello, make_hello());
  REQUIRE_OK(greeted);
  // One that leaves nothing; then one beside another that stays.
  keeper::Spawn first = gang(kept, "exit", 1);
  first.add_environment("CODE=0");
  keeper::Spawn second = gang(kept, "exit", 1);
  second.add_environment("CODE=0");
  second.mutable_ranks(0)->set_rank(1);
  keeper::Spawn third = gang(kept, "stubborn", 1);
  third.mutable_ranks(0)->set_rank(2);
  auto sent = co_await stream.send(KeeperMessage::spawn, first);
  REQUIRE_OK(sent);
  keeper::Exited exited;
  KeeperFrame frame = co_await next_frame(stream, KeeperMessage::exited);
  REQUIRE_OK(frame.parse(exited));
  CHECK(exited.empty_after_spawns() == 1);
  sent = co_await stream.send(KeeperMessage::spawn, third);
  REQUIRE_OK(sent);
  sent = co_await stream.send(KeeperMessage::spawn, second);
  REQUIRE_OK(sent);
  frame = co_await next_frame(stream, KeeperMessage::exited);
  REQUIRE_OK(frame.parse(exited));
  CHECK(exited.ranks(0).rank() == 1);
  CHECK(exited.empty_after_spawns() == 0);
  std::string path = kept.path;
  auto next = co_await connect_keeper(kept.world, std::move(path));
  REQUIRE_OK(next);
  kept.client = std::move(next->client);
}

TEST_CASE("an exit says whether it was the last of everything") {
  in_both_worlds(exits_with_and_without_rest);
}

TEST_CASE("after a reset nothing is left, and the same keeper takes the next job") {
  in_both_worlds(reset_twice);
}

// Of another user, say: there, and not to be ended.
class Haunted final : public Processes {
 public:
  explicit Haunted(Processes& inner) : inner_(inner) {}
  bool haunted = false;
  static constexpr pid_t kGhost = 4711;

  Result<std::unique_ptr<Process>> spawn(const SpawnOptions& options) override {
    return inner_.spawn(options);
  }
  Result<Pipe> pipe() override { return inner_.pipe(); }
  Result<Terminal> terminal(unsigned columns, unsigned rows) override {
    return inner_.terminal(columns, rows);
  }
  Result<void> become_subreaper() override { return inner_.become_subreaper(); }
  Result<std::vector<pid_t>> descendants(std::span<const pid_t> spare) override {
    TRY(auto found, inner_.descendants(spare));
    if (haunted) found.push_back(kGhost);
    return found;
  }
  bool childless() override { return !haunted && inner_.childless(); }
  Result<void> signal(pid_t pid, int number) override {
    if (pid == kGhost) return fail(Code::denied, "not yours");
    return inner_.signal(pid, number);
  }
  bool family_lives(pid_t leader) override { return inner_.family_lives(leader); }
  std::map<pid_t, Usage> usage_of(std::span<const pid_t> leaders) override {
    return inner_.usage_of(leaders);
  }
  size_t reap_orphans() override { return inner_.reap_orphans(); }
  Result<std::unique_ptr<ProcessGroup>> create_group(std::string name) override {
    return inner_.create_group(std::move(name));
  }
  Result<std::unique_ptr<ProcessGroup>> open_group(std::string name) override {
    return inner_.open_group(std::move(name));
  }
  pid_t own_pid() const override { return inner_.own_pid(); }
  std::string name_of(pid_t pid) override { return pid == kGhost ? "ghost" : inner_.name_of(pid); }
  char state_of(pid_t pid) override { return pid == kGhost ? 'D' : inner_.state_of(pid); }
  Result<uint64_t> memory_kills(const ProcessGroup* group) override {
    return inner_.memory_kills(group);
  }

 private:
  Processes& inner_;
};

class HauntedWorld final : public World {
 public:
  explicit HauntedWorld(World& inner) : ghosts(inner.processes()), inner_(inner) {}
  Haunted ghosts;
  Clock& clock() override { return inner_.clock(); }
  Network& network() override { return inner_.network(); }
  Disk& disk() override { return inner_.disk(); }
  Processes& processes() override { return ghosts; }
  Memory& memory() override { return inner_.memory(); }
  Random& random() override { return inner_.random(); }
  const std::string& host_name() const override { return inner_.host_name(); }
  bool fault(CodePlace& place) override { return inner_.fault(place); }

 private:
  World& inner_;
};

Task<void> haunted_reset(Kept& kept) {
  co_await start(kept, gang(kept, "sleep", 1));
  Haunted& ghosts = static_cast<HauntedWorld&>(kept.world).ghosts;
  ghosts.haunted = true;
  auto reset = co_await kept.client->reset();
  REQUIRE(!reset.has_value());
  CHECK(reset.error().text().find("4711 (ghost, state D)") != std::string::npos);
  auto things = co_await kept.client->list();
  CHECK(things->ranks.size() == 1);  // what is left is still held
  const auto exit = co_await next_exit(kept);
  auto acknowledged = co_await kept.client->acknowledge(exit.sequence());
  CHECK(acknowledged.has_value());
  auto refused = co_await kept.client->spawn(gang(kept, "sleep", 1));
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code() == Code::unavailable);
  CHECK(refused.error().text().find("4711 (ghost, state D)") != std::string::npos);
  ghosts.haunted = false;
  auto again = co_await kept.client->reset();
  CHECK(again.has_value());
  co_await start(kept, gang(kept, "sleep", 1));
}

TEST_CASE("a reset that cannot end everything says what is left, and no job follows") {
  Simulator sim{{.seed = 11, .hosts = 1}};
  add_programs(sim);
  HauntedWorld world(sim.host(0));
  auto ran = sim.run(testing::beside_keeper(world, haunted_reset, true, 2), 1h);
  REQUIRE_OK(ran);
}

}  // namespace
}  // namespace tutti
