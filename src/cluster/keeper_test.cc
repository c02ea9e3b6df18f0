#include "cluster/keeper.h"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "cluster/keeper_messages.h"
#include "world/real/real_world.h"

namespace tutti {
namespace {

// A keeper within the test's own process, and its first controller.
struct Kept {
  World& world;
  KeeperStream controller;
  std::string path;  // where it lingers

  explicit Kept(World& world, std::unique_ptr<Stream> ours, std::string path)
      : world(world), controller(std::move(ours)), path(std::move(path)) {}
};

Task<void> keep_and_check(World& world, KeeperOptions options, std::unique_ptr<Stream> stream) {
  auto kept = co_await keep(world, std::move(options), std::move(stream));
  CHECK_MESSAGE(kept.has_value(), (kept ? "" : kept.error().text()));
}

// Runs the test beside a keeper; both must return.
Task<void> beside_keeper(World& world, Task<void> (*test)(Kept&), bool linger) {
  auto pair = world.network().pair();
  REQUIRE(pair.has_value());
  auto theirs = world.network().adopt(std::move(pair->theirs));
  REQUIRE(theirs.has_value());
  const std::string folder = std::filesystem::temp_directory_path();
  const std::string path =
      linger ? fmt::format("{}/tutti-keeper-{:016x}", folder, world.random().next()) : "";
  KeeperOptions options{.group = "", .linger = path};
  Kept kept(world, std::move(pair->ours), path);
  Scope scope;
  scope.spawn(keep_and_check(world, std::move(options), std::move(*theirs)));
  scope.spawn(test(kept));
  auto joined = co_await scope.join();
  CHECK(joined.has_value());
}

void with_keeper(Task<void> (*test)(Kept&), bool linger = false) {
  RealWorld world({.spin = 0s});
  world.run(beside_keeper(world, test, linger));
}

template <class Message>
Task<Message> expect(KeeperStream& stream, KeeperMessage kind) {
  auto frame = co_await stream.receive();
  Message message;
  REQUIRE_MESSAGE(frame.has_value(), (frame ? "" : frame.error().text()));
  REQUIRE(static_cast<int>(frame->kind) == static_cast<int>(kind));
  REQUIRE(frame->parse(message).has_value());
  co_return message;
}

Task<void> say_hello(KeeperStream& stream) {
  const keeper::Hello hello = make_hello();
  auto sent = co_await stream.send(KeeperMessage::hello, hello);
  CHECK(sent.has_value());
  const auto welcome = co_await expect<keeper::Welcome>(stream, KeeperMessage::welcome);
  CHECK(welcome.version() == kHighestKeeperVersion);
}

keeper::Spawn shell(const std::string& script, uint32_t ranks) {
  keeper::Spawn spawn;
  for (const char* word : {"/bin/sh", "-c"}) spawn.add_arguments(word);
  spawn.add_arguments(script);
  spawn.add_environment("PATH=/usr/bin:/bin");
  spawn.add_environment("COMMON=all");
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    spawn.add_ranks()->set_rank(rank);
    spawn.mutable_ranks(static_cast<int>(rank))->add_environment(fmt::format("RANK={}", rank));
  }
  return spawn;
}

Task<void> shut_down(KeeperStream& stream) {
  const keeper::Shutdown shutdown;
  auto sent = co_await stream.send(KeeperMessage::shutdown, shutdown);
  CHECK(sent.has_value());
}

Task<std::string> read_all(World& world, Handle handle) {
  auto stream = world.network().adopt(std::move(handle));
  REQUIRE(stream.has_value());
  std::string text;
  std::string piece(4096, ' ');
  while (true) {
    const MutableBytes into = as_mutable_bytes(piece);
    auto count = co_await (*stream)->read(into);
    if (!count || *count == 0) co_return text;
    text.append(piece, 0, *count);
  }
}

Task<void> two_ranks(Kept& kept) {
  KeeperStream& stream = kept.controller;
  co_await say_hello(stream);
  keeper::Spawn spawn = shell("echo $COMMON $RANK; [ $RANK = 1 ] && exit 7; sleep 0.3", 2);
  spawn.mutable_ranks(1)->add_environment("COMMON=mine");
  auto sent = co_await stream.send(KeeperMessage::spawn, spawn);
  CHECK(sent.has_value());
  auto frame = co_await stream.receive();
  REQUIRE(frame.has_value());
  keeper::Spawned spawned;
  REQUIRE(frame->parse(spawned).has_value());
  REQUIRE(spawned.ranks_size() == 2);
  REQUIRE(frame->handles.size() == 4);
  CHECK(spawned.last());
  const std::string first = co_await read_all(kept.world, std::move(frame->handles[0]));
  CHECK(first == "all 0\n");
  const std::string second = co_await read_all(kept.world, std::move(frame->handles[2]));
  CHECK(second == "mine 1\n");
  uint64_t sequence = 0;
  for (const int code : {7, 0}) {
    const auto exited = co_await expect<keeper::Exited>(stream, KeeperMessage::exited);
    REQUIRE(exited.ranks_size() == 1);
    CHECK(exited.ranks(0).sequence() == ++sequence);
    CHECK(exited.ranks(0).code() == code);
  }
  co_await shut_down(stream);
}

TEST_CASE("a keeper starts ranks with what is common and what is theirs, and tells their exits") {
  with_keeper(two_ranks);
}

Task<void> failing_spawn(Kept& kept) {
  KeeperStream& stream = kept.controller;
  co_await say_hello(stream);
  keeper::Spawn spawn = shell("exit 0", 3);
  spawn.set_arguments(0, "/no/such/program");
  auto sent = co_await stream.send(KeeperMessage::spawn, spawn);
  CHECK(sent.has_value());
  const auto failure = co_await expect<keeper::Failure>(stream, KeeperMessage::failure);
  const Error error = to_error(failure);
  CHECK(error.code() == Code::not_found);
  CHECK(error.text().find("/no/such/program") != std::string::npos);
  // And it goes on being of use.
  keeper::Spawn better = shell("exit 4", 1);
  auto again = co_await stream.send(KeeperMessage::spawn, better);
  CHECK(again.has_value());
  const auto spawned = co_await expect<keeper::Spawned>(stream, KeeperMessage::spawned);
  CHECK(spawned.ranks_size() == 1);
  const auto exited = co_await expect<keeper::Exited>(stream, KeeperMessage::exited);
  CHECK(exited.ranks(0).code() == 4);
  co_await shut_down(stream);
}

TEST_CASE("ranks that cannot be started are answered with the reason") {
  with_keeper(failing_spawn);
}

Task<void> ended_with_grace(Kept& kept) {
  KeeperStream& stream = kept.controller;
  co_await say_hello(stream);
  // Rank 0 ends when asked, rank 1 does not listen, rank 2 is stopped.
  keeper::Spawn spawn = shell(
      "[ $RANK = 1 ] && trap '' TERM; echo up; [ $RANK = 2 ] && kill -STOP $$; "
      "while :; do sleep 0.02; done",
      3);
  auto sent = co_await stream.send(KeeperMessage::spawn, spawn);
  CHECK(sent.has_value());
  auto frame = co_await stream.receive();
  REQUIRE(frame.has_value());
  for (const size_t output : {0, 2, 4}) {
    auto pipe = kept.world.network().adopt(std::move(frame->handles[output]));
    std::byte up[3];
    const MutableBytes into(up);
    auto count = co_await (*pipe)->read(into);
    CHECK(count.has_value());
  }
  keeper::End end;
  end.set_grace_ns(to_ns(200ms));
  auto asked = co_await stream.send(KeeperMessage::end, end);
  CHECK(asked.has_value());
  std::map<uint32_t, keeper::Exited::Rank> ends;
  while (ends.size() < 3) {
    const auto exited = co_await expect<keeper::Exited>(stream, KeeperMessage::exited);
    for (const auto& rank : exited.ranks()) ends[rank.rank()] = rank;
  }
  CHECK(ends[0].signal() == SIGTERM);
  CHECK(ends[1].signal() == SIGKILL);
  CHECK(ends[1].last_signal_sent() == SIGKILL);
  CHECK(ends[2].signal() == SIGTERM);
  co_await shut_down(stream);
}

TEST_CASE("ranks are asked to end, also stopped ones, and killed when they do not listen") {
  with_keeper(ended_with_grace);
}

Task<void> unknown_things(Kept& kept) {
  KeeperStream& stream = kept.controller;
  co_await say_hello(stream);
  const keeper::Done nothing;
  auto sent = co_await stream.send(static_cast<KeeperMessage>(99), nothing);
  CHECK(sent.has_value());
  auto failure = co_await expect<keeper::Failure>(stream, KeeperMessage::failure);
  CHECK(to_error(failure).code() == Code::unsupported);
  keeper::DropArena drop;
  drop.set_name("never made");
  auto dropped = co_await stream.send(KeeperMessage::drop_arena, drop);
  CHECK(dropped.has_value());
  failure = co_await expect<keeper::Failure>(stream, KeeperMessage::failure);
  CHECK(to_error(failure).code() == Code::not_found);
  co_await shut_down(stream);
}

TEST_CASE("a command the keeper does not know is answered, and the session goes on") {
  with_keeper(unknown_things);
}

Task<void> future_controller(Kept& kept) {
  keeper::Hello hello = make_hello();
  hello.set_lowest_version(kHighestKeeperVersion + 1);
  hello.set_highest_version(kHighestKeeperVersion + 2);
  hello.set_program("tutti 99");
  auto sent = co_await kept.controller.send(KeeperMessage::hello, hello);
  CHECK(sent.has_value());
  const auto failure = co_await expect<keeper::Failure>(kept.controller, KeeperMessage::failure);
  CHECK(to_error(failure).code() == Code::unsupported);
  CHECK(failure.message().find("'tutti 99' speaks versions 4 to 5") != std::string::npos);
  auto closed = co_await kept.controller.receive();
  CHECK(!closed.has_value());
  // A lingering keeper waits for somebody it understands.
  Address address = Address::unix_socket(kept.path);
  auto stream = co_await kept.world.network().connect(std::move(address));
  REQUIRE(stream.has_value());
  KeeperStream next(std::move(*stream));
  co_await say_hello(next);
  co_await shut_down(next);
}

TEST_CASE("a controller of another version is refused with a reason") {
  with_keeper(future_controller, true);
}

Task<void> takeover(Kept& kept) {
  World& world = kept.world;
  co_await say_hello(kept.controller);
  keeper::Spawn spawn =
      shell("echo one; sleep 0.2; echo two; [ $RANK = 0 ] && exit 5; sleep 1000", 2);
  auto sent = co_await kept.controller.send(KeeperMessage::spawn, spawn);
  CHECK(sent.has_value());
  keeper::CreateArena create;
  create.set_name("vault");
  create.set_size_bytes(1 << 16);
  auto created = co_await kept.controller.send(KeeperMessage::create_arena, create);
  CHECK(created.has_value());
  auto spawned = co_await kept.controller.receive();
  REQUIRE(spawned.has_value());
  auto arenas = co_await kept.controller.receive();
  REQUIRE(arenas.has_value());
  REQUIRE(arenas->handles.size() == 1);
  {
    auto mapping = world.memory().map(arenas->handles[0], 0, 1 << 16, true);
    REQUIRE(mapping.has_value());
    (*mapping)->bytes()[4711] = std::byte{42};
  }
  // The first controller dies, having read and acknowledged nothing.
  spawned->handles.clear();
  arenas->handles.clear();
  CHECK(kept.controller.stream().shutdown_write().has_value());

  Address address = Address::unix_socket(kept.path);
  auto stream = co_await world.network().connect(std::move(address));
  REQUIRE(stream.has_value());
  KeeperStream next(std::move(*stream));
  co_await say_hello(next);
  auto exited = co_await expect<keeper::Exited>(next, KeeperMessage::exited);
  CHECK(exited.ranks(0).code() == 5);
  const keeper::List list;
  auto asked = co_await next.send(KeeperMessage::list, list);
  CHECK(asked.has_value());
  auto ranks = co_await next.receive();
  REQUIRE(ranks.has_value());
  REQUIRE(ranks->handles.size() == 4);
  const std::string output = co_await read_all(world, std::move(ranks->handles[0]));
  CHECK(output == "one\ntwo\n");
  auto held = co_await next.receive();
  REQUIRE(held.has_value());
  REQUIRE(held->handles.size() == 1);
  auto mapping = world.memory().map(held->handles[0], 0, 1 << 16, false);
  REQUIRE(mapping.has_value());
  CHECK((*mapping)->bytes()[4711] == std::byte{42});

  // What is acknowledged is forgotten.
  keeper::Acknowledge acknowledge;
  acknowledge.set_sequence(1);
  auto noted = co_await next.send(KeeperMessage::acknowledge, acknowledge);
  CHECK(noted.has_value());
  auto asked_again = co_await next.send(KeeperMessage::list, list);
  CHECK(asked_again.has_value());
  const auto left = co_await expect<keeper::Spawned>(next, KeeperMessage::spawned);
  REQUIRE(left.ranks_size() == 1);
  CHECK(left.ranks(0).rank() == 1);
  co_await shut_down(next);
}

TEST_CASE("a lingering keeper gives the next controller output, exits and arenas") {
  with_keeper(takeover, true);
}

Task<void> controller_gone(Kept& kept) {
  co_await say_hello(kept.controller);
  keeper::Spawn spawn = shell("trap '' TERM; setsid sleep 1000 & sleep 1000", 3);
  auto sent = co_await kept.controller.send(KeeperMessage::spawn, spawn);
  CHECK(sent.has_value());
  const auto spawned = co_await expect<keeper::Spawned>(kept.controller, KeeperMessage::spawned);
  CHECK(spawned.ranks_size() == 3);
  CHECK(kept.controller.stream().shutdown_write().has_value());
  auto end = co_await kept.controller.receive();
  while (end) end = co_await kept.controller.receive();
}

TEST_CASE("without its controller a keeper ends everything and returns") {
  RealWorld world({.spin = 0s});
  world.run(beside_keeper(world, controller_gone, false));
  auto left = world.processes().descendants();
  REQUIRE(left.has_value());
  CHECK(left->empty());
}

Task<void> truncated(Kept& kept) {
  const std::string header("\xff\xff\xff\xff\x02\x00\x00\x00", 8);
  co_await say_hello(kept.controller);
  const Bytes bytes = as_bytes(header);
  auto sent = co_await kept.controller.stream().write(bytes);
  CHECK(sent.has_value());
  auto end = co_await kept.controller.receive();
  CHECK(!end.has_value());
}

TEST_CASE("a message past the limit ends the session before anything is allocated for it") {
  with_keeper(truncated);
}

}  // namespace
}  // namespace tutti
