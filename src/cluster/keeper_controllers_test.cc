// Controllers of a keeper: of another version, one after the other, and dead at any moment.
#include <malloc.h>

#include <functional>

#include "cluster/keeper_test.h"

namespace tutti {
namespace {

// ---- Versions. ----

Task<void> old_keeper(Kept& kept) {
  KeeperClient& client = *kept.client;
  CHECK(client.version() == 1);
  auto reset = co_await client.reset();
  CHECK(reset.error().code() == Code::unsupported);
  auto assigned = co_await client.assign(keeper::Assign());
  CHECK(assigned.error().code() == Code::unsupported);
  keeper::Spawn spare = gang(kept, "spare", 1);
  spare.mutable_ranks(0)->set_spare(true);
  auto spawned = co_await client.spawn(std::move(spare));
  CHECK(spawned.error().code() == Code::unsupported);
  keeper::End one;
  one.add_ranks(0);
  auto ended = co_await client.end(std::move(one));
  CHECK(ended.error().code() == Code::unsupported);
  // And what is of version 1 works.
  auto good = co_await client.spawn(gang(kept, "sleep", 2));
  REQUIRE_OK(good);
  auto all = co_await client.end(keeper::End());
  CHECK(all.has_value());
  for (int i = 0; i < 2; ++i) {
    auto exit = co_await client.next_exit();
    REQUIRE_OK(exit);
    CHECK(exit->signal() == SIGKILL);
  }
}

TEST_CASE("a new controller speaks version 1 with an old keeper, and asks for nothing newer") {
  in_both_worlds(old_keeper, 1);
}

// An old controller beside the ranks and spares of a new one.
Task<void> old_controller(Kept& kept) {
  keeper::Spawn spawn = gang(kept, "spare", 2);
  spawn.mutable_ranks(1)->set_spare(true);
  auto spawned = co_await kept.client->spawn(std::move(spawn));
  REQUIRE_OK(spawned);
  std::string path = kept.path;
  auto old = co_await connect_keeper(kept.world, std::move(path), 1);
  REQUIRE_OK(old);
  kept.client = std::move(old->client);
  CHECK(kept.client->version() == 1);
  REQUIRE(old->things.ranks.size() == 1);
  CHECK(!old->things.ranks[0].spare);
  keeper::Signal signal;
  signal.set_number(SIGKILL);
  auto reached = co_await kept.client->signal(std::move(signal));
  CHECK(*reached == 2);
  auto exit = co_await kept.client->next_exit();
  REQUIRE_OK(exit);
  CHECK(!exit->spare());
}

TEST_CASE("an old controller sees the ranks of a new keeper, and none of its spares") {
  in_both_worlds(old_controller);
}

// What a careless program might send in a session of version 1, past the client's own checks.
Task<void> newer_in_old_session(Kept& kept) {
  Address address = Address::unix_socket(kept.path);
  auto connection = co_await kept.world.network().connect(std::move(address));
  REQUIRE_OK(connection);
  KeeperStream stream(std::move(*connection));
  const keeper::Hello hello = make_hello(1);
  auto greeted = co_await stream.send(KeeperMessage::hello, hello);
  CHECK(greeted.has_value());
  (void)co_await stream.receive();
  keeper::Spawn spawn = gang(kept, "sleep", 1);
  spawn.set_control_arena("pages");
  keeper::End end;
  end.add_ranks(0);
  keeper::Signal signal;
  signal.add_spares(0);
  const keeper::Assign assign;
  const keeper::Reset reset;
  std::string frames;
  encode_keeper_frame(KeeperMessage::spawn, spawn, 0, frames);
  encode_keeper_frame(KeeperMessage::end, end, 0, frames);
  encode_keeper_frame(KeeperMessage::signal, signal, 0, frames);
  encode_keeper_frame(KeeperMessage::assign, assign, 0, frames);
  encode_keeper_frame(KeeperMessage::reset, reset, 0, frames);
  auto sent = co_await stream.send_encoded(std::move(frames));
  CHECK(sent.has_value());
  for (int i = 0; i < 5; ++i) {
    auto frame = co_await stream.receive();
    REQUIRE_OK(frame);
    keeper::Failure failure;
    REQUIRE(frame->kind == KeeperMessage::failure);
    REQUIRE(frame->parse(failure).has_value());
    CHECK(to_error(failure).code() == Code::unsupported);
  }
  std::string path = kept.path;
  auto next = co_await connect_keeper(kept.world, std::move(path));
  REQUIRE_OK(next);
  CHECK(next->client->version() == kHighestKeeperVersion);
  kept.client = std::move(next->client);
}

// ---- Whose job it keeps. ----

Task<uint64_t> job_of_keeper(Kept& kept, uint32_t highest) {
  std::string path = kept.path;
  auto next = co_await connect_keeper(kept.world, std::move(path), highest);
  REQUIRE_OK(next);
  kept.client = std::move(next->client);
  co_return kept.client->welcome().job();
}

Task<void> whose_job(Kept& kept) {
  constexpr uint64_t kJob = 7;
  uint64_t told = co_await job_of_keeper(kept, kHighestKeeperVersion);
  CHECK(told == 0);
  keeper::Spawn spawn = gang(kept, "sleep", 1);
  spawn.set_job(kJob);
  auto spawned = co_await kept.client->spawn(std::move(spawn));
  REQUIRE_OK(spawned);
  told = co_await job_of_keeper(kept, kHighestKeeperVersion);
  CHECK(told == kJob);
  told = co_await job_of_keeper(kept, kKeeperVersionOfJobs - 1);
  CHECK(told == 0);
  auto reset = co_await kept.client->reset();
  REQUIRE_OK(reset);
  told = co_await job_of_keeper(kept, kHighestKeeperVersion);
  CHECK(told == 0);
}

TEST_CASE("a keeper says whose ranks it has until it is reset, to who understands that") {
  in_both_worlds(whose_job);
}

TEST_CASE("in a session of version 1 everything newer is refused, and the session goes on") {
  in_both_worlds(newer_in_old_session);
}

// ---- One controller after the other. ----

Task<void> found_again(Kept& kept) {
  auto arena = co_await kept.client->create_arena("pages", 2 * kControlPageBytes);
  REQUIRE_OK(arena);
  keeper::Spawn spawn = gang(kept, "exit", 2);
  spawn.set_output(keeper::Spawn::PIPES);
  spawn.set_control_arena("pages");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    keeper::Spawn::Rank& one = *spawn.mutable_ranks(static_cast<int>(rank));
    one.set_control_offset(rank * kControlPageBytes);
    one.add_environment(fmt::format("CODE={}", rank));
  }
  auto spawned = co_await kept.client->spawn(std::move(spawn));
  REQUIRE_OK(spawned);
  for (int i = 0; i < 2; ++i) (void)co_await kept.client->next_exit();
  std::string path = kept.path;
  auto next = co_await connect_keeper(kept.world, std::move(path));
  REQUIRE_OK(next);
  kept.client = std::move(next->client);
  REQUIRE(next->exits.size() == 2);
  CHECK(next->exits[0].sequence() == 1);
  REQUIRE(next->things.ranks.size() == 2);
  for (const KeptRank& rank : next->things.ranks) {
    CHECK(rank.ended);
    CHECK(rank.outputs.size() == 2);
    CHECK(rank.control_arena == "pages");
    CHECK(rank.control_offset == rank.rank * kControlPageBytes);
  }
  REQUIRE(next->things.arenas.size() == 1);
  auto pages = ControlPages::open(kept.world, next->things.arenas[0].handle);
  REQUIRE_OK(pages);
  CHECK(read_dead(*(*pages)->find(0)) == RankRanges{{1, 1}});
}

TEST_CASE("the next controller finds ranks, handles, arenas and exits in one call") {
  in_both_worlds(found_again);
}

Task<void> ask_twice(KeeperClient& client, Kept& kept, int& answered) {
  auto things = co_await client.list();
  answered += things ? 1 : 0;
  auto wrong = co_await client.drop_arena("never made");
  answered += !wrong && wrong.error().code() == Code::not_found ? 1 : 0;
  (void)kept;
}

Task<void> many_strands(Kept& kept) {
  KeeperClient& client = *kept.client;
  Scope scope;
  scope.spawn(client.run());
  co_await yield();
  int answered = 0;
  {
    Scope asking;
    for (int i = 0; i < 20; ++i) asking.spawn(ask_twice(client, kept, answered));
    auto joined = co_await asking.join();
    CHECK(joined.has_value());
  }
  CHECK(answered == 40);
  // Who gives up leaves the others their answers.
  {
    Scope impatient;
    impatient.spawn(ask_twice(client, kept, answered));
    co_await yield();
    impatient.cancel();
    (void)co_await impatient.join();
  }
  auto arena = co_await client.create_arena("after", 4096);
  CHECK(arena.has_value());
  scope.cancel();
  (void)co_await scope.join();
}

TEST_CASE("many strands ask at once, and each has its own answer") { in_both_worlds(many_strands); }

Task<void> keeper_gone(Kept& kept) {
  auto told = co_await kept.client->shutdown();
  CHECK(told.has_value());
  auto exit = co_await kept.client->next_exit();
  CHECK(exit.error().code() == Code::unavailable);
  auto things = co_await kept.client->list();
  CHECK(things.error().code() == Code::unavailable);
}

TEST_CASE("without its keeper a client says so") { in_both_worlds(keeper_gone); }

// ---- Dead at any moment. ----

// A conversation, frame by frame. Each step sends one, or waits for one.
struct Talk {
  Kept& kept;
  KeeperStream stream;
};
using Step = Task<Result<void>> (*)(Talk&);

template <KeeperMessage kind, class Message>
Task<Result<void>> say(Talk& talk) {
  Message message;
  if constexpr (std::is_same_v<Message, keeper::Hello>) message = make_hello();
  if constexpr (std::is_same_v<Message, keeper::CreateArena>) {
    message.set_name("pages");
    message.set_size_bytes(8 * kControlPageBytes);
  }
  if constexpr (std::is_same_v<Message, keeper::Spawn>) {
    message = gang(talk.kept, "spare", 3);
    message.set_control_arena("pages");
    message.mutable_ranks(0)->set_control_offset(0);
    message.mutable_ranks(1)->set_spare(true);
    message.mutable_ranks(2)->set_spare(true);
    message.add_environment("STAY=1");
  }
  if constexpr (std::is_same_v<Message, keeper::Assign>) {
    message.set_spare(1);
    message.set_rank(1);
    message.set_control_offset(kControlPageBytes);
  }
  if constexpr (std::is_same_v<Message, keeper::Signal>) {
    message.add_ranks(1);
    message.set_number(SIGKILL);
  }
  if constexpr (std::is_same_v<Message, keeper::Acknowledge>) message.set_sequence(1);
  if constexpr (std::is_same_v<Message, keeper::End>) {
    message.add_spares(2);
    message.set_grace_ns(to_ns(1s));
  }
  co_return co_await talk.stream.send(kind, message);
}

template <KeeperMessage kind>
Task<Result<void>> hear(Talk& talk) {
  auto frame = co_await talk.stream.receive();
  if (!frame) co_return fail(std::move(frame).error());
  CHECK(static_cast<int>(frame->kind) == static_cast<int>(kind));
  co_return {};
}

constexpr Step kConversation[] = {
    say<KeeperMessage::hello, keeper::Hello>,
    hear<KeeperMessage::welcome>,
    say<KeeperMessage::create_arena, keeper::CreateArena>,
    hear<KeeperMessage::arenas>,
    say<KeeperMessage::spawn, keeper::Spawn>,
    hear<KeeperMessage::spawned>,
    say<KeeperMessage::assign, keeper::Assign>,
    hear<KeeperMessage::done>,
    say<KeeperMessage::signal, keeper::Signal>,
    hear<KeeperMessage::signalled>,
    hear<KeeperMessage::exited>,
    say<KeeperMessage::acknowledge, keeper::Acknowledge>,
    say<KeeperMessage::end, keeper::End>,
    hear<KeeperMessage::exited>,
    say<KeeperMessage::list, keeper::List>,
    hear<KeeperMessage::spawned>,
    hear<KeeperMessage::arenas>,
    say<KeeperMessage::reset, keeper::Reset>,
    hear<KeeperMessage::done>,
};

// How far the next controller finds things, by how many steps the one before it took. A command
// that was sent counts whether or not its answer was heard: the keeper has read it when it accepts
// the next controller, or it has not and never will.
Task<void> check_state(Kept& kept, ConnectedKeeper& found, size_t steps) {
  const size_t arenas = found.things.arenas.size();
  const size_t ranks = found.things.ranks.size();
  if (steps < 3) CHECK(arenas == 0);
  if (steps >= 4 && steps < 18) CHECK(arenas == 1);
  if (steps < 5) CHECK(ranks == 0);
  if (steps >= 6 && steps < 12) CHECK(ranks == 3);
  if (steps >= 8 && steps < 11) {
    auto pages = ControlPages::open(kept.world, found.things.arenas[0].handle);
    REQUIRE_OK(pages);
    CHECK((*pages)->find(kControlPageBytes)->rank == 1);
  }
  if (steps == 11) CHECK(found.exits.size() == 1);
  if (steps >= 19) CHECK(arenas + ranks + found.exits.size() == 0);
  // Whatever it was, the next controller goes on from there.
  auto reset = co_await found.client->reset();
  REQUIRE_OK(reset);
  (void)found.client->take_exits();
  auto spawned = co_await found.client->spawn(gang(kept, "sleep", 2));
  REQUIRE_OK(spawned);
  CHECK(spawned->size() == 2);
}

size_t steps_to_take = 0;

Task<void> dies_after_steps(Kept& kept) {
  kept.client.reset();
  {
    Address address = Address::unix_socket(kept.path);
    auto connection = co_await kept.world.network().connect(std::move(address));
    REQUIRE_OK(connection);
    Talk talk{kept, KeeperStream(std::move(*connection))};
    for (size_t step = 0; step < steps_to_take; ++step) {
      auto taken = co_await kConversation[step](talk);
      REQUIRE_OK(taken);
    }
  }
  std::string path = kept.path;
  auto found = co_await connect_keeper(kept.world, std::move(path));
  REQUIRE_OK(found);
  co_await check_state(kept, *found, steps_to_take);
  kept.client = std::move(found->client);
}

TEST_CASE("a controller may die between any two frames, and the next one goes on") {
  for (steps_to_take = 0; steps_to_take <= std::size(kConversation); ++steps_to_take) {
    INFO("after ", steps_to_take, " steps");
    in_both_worlds(dies_after_steps);
  }
}

// ---- Small when idle. ----

// Sanitizers bring allocators of their own, which do not count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Task<int> exit_code(Task<Result<void>> keeping) {
  auto kept = co_await std::move(keeping);
  co_return kept ? 0 : 1;
}

Task<int> lingering_keeper(SimProcess& process) {
  auto controller = process.take_stream(kKeeperControllerNumber);
  REQUIRE_OK(controller);
  KeeperOptions options{.group = "", .linger = process.arguments().back()};
  return exit_code(keep(process, std::move(options), std::move(*controller)));
}

struct Idle {
  std::unique_ptr<Process> process;
  std::unique_ptr<KeeperClient> client;
};

Task<Result<void>> start_idle(SimHost& host, Idle& idle) {
  StartKeeperOptions options;
  options.command = {"keeper"};
  options.linger = "/run/keeper";
  CO_TRY(StartedKeeper started, start_keeper(host, options));
  idle.process = std::move(started.process);
  idle.client = std::make_unique<KeeperClient>(std::move(started.stream));
  CO_TRY_DO(co_await idle.client->hello());
  CO_TRY_DO(co_await idle.client->create_arena("pages", kControlPageBytes));
  keeper::Spawn spawn;
  spawn.add_arguments("sleep");
  spawn.set_control_arena("pages");
  spawn.add_ranks()->set_control_offset(0);
  CO_TRY_DO(co_await idle.client->spawn(std::move(spawn)));
  co_return {};
}

// A host makes its parts when they are first used, by an agent, say.
Task<Result<void>> use_once(SimHost& host) {
  SpawnOptions options{.arguments = {"exit"}, .environment = {"CODE=0"}};
  CO_TRY(auto process, host.processes().spawn(options));
  CO_TRY_DO(co_await process->wait());
  CO_TRY_DO(host.memory().create_arena("one", 1));
  CO_TRY_DO(co_await host.network().listen(Address::unix_socket("/run/one")));
  CO_TRY_DO(host.network().pair());
  co_return {};
}

// The bound holds what was measured: most of it are the two simulated processes (1.6 KB with their
// programs), the control page (1 KiB), two pipes (0.9 KB) and the keeper itself (0.8 KB).
TEST_CASE("an idle keeper with a rank and its page takes little memory") {
  constexpr uint32_t kHosts = 600;
  constexpr uint32_t kHalf = kHosts / 2;  // the second: the first makes what the simulator needs
  Simulator sim{{.seed = 5, .hosts = kHosts}};
  add_programs(sim);
  sim.set_process("keeper", lingering_keeper);
  std::vector<Idle> idle(kHosts);
  for (uint32_t i = 0; i < kHosts; ++i) REQUIRE_OK(sim.run(use_once(sim.host(i)), 1h));
  for (uint32_t i = 0; i < kHalf; ++i) REQUIRE_OK(sim.run(start_idle(sim.host(i), idle[i]), 1h));
  sim.run_for(10s);
  const size_t before = heap_bytes();
  for (uint32_t i = kHalf; i < kHosts; ++i)
    REQUIRE_OK(sim.run(start_idle(sim.host(i), idle[i]), 1h));
  sim.run_for(10s);
  const size_t controlled = (heap_bytes() - before) / kHalf;
  for (uint32_t i = kHalf; i < kHosts; ++i) idle[i].client.reset();
  sim.run_for(10s);
  const size_t alone = (heap_bytes() - before) / kHalf;
  MESSAGE("bytes of a keeper with one rank: ", controlled, " with its controller's end, ", alone,
          " without");
  CHECK(alone < 6912);
  CHECK(controlled < 9984);
  for (Idle& one : idle) one.process.reset();
}

#endif

}  // namespace
}  // namespace tutti
