// What is told to somebody, in place of who waits for it: connections, bytes, ends of processes.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "world/scope.h"
#include "world/sim/handles.h"
#include "world/sim/process.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

// Everything that comes to a port.
class Guest final : public ConnectionTaker, public ByteTaker {
 public:
  explicit Guest(SimHost& host) : host_(host) {}

  Task<Result<void>> listen(Duration later) {
    const Address address = Address::tcp("0.0.0.0", 7000);
    CO_TRY(listener_, co_await host_.network().listen(address));
    CO_TRY_DO(co_await host_.clock().sleep(later));
    listener_->serve(*this, host_.scope());
    co_return {};
  }

  std::string heard;
  int streams = 0;
  int ends = 0;
  Duration wait{};

 private:
  void on_connection(std::unique_ptr<Stream> stream) override {
    ++streams;
    stream->serve(*this, host_.scope(), &host_.clock());
    streams_.push_back(std::move(stream));
  }
  void on_bytes(Bytes bytes, std::vector<Handle>) override { heard += as_text(bytes); }
  Duration pause() override { return std::exchange(wait, {}); }
  void on_end(Result<void> why) override { ends += why ? 1 : 100; }

  SimHost& host_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

Task<Result<void>> say(SimHost& host, std::string text, int times) {
  const Address address = Address::tcp("host1", 7000);
  CO_TRY(auto stream, co_await host.network().connect(address));
  for (int i = 0; i < times; ++i) {
    const Bytes bytes = as_bytes(text);
    CO_TRY_DO(co_await stream->write(bytes));
    CO_TRY_DO(co_await host.clock().sleep(1ms));
  }
  co_return {};
}

TEST_CASE("a taker gets all that comes, also what came before it, and every end once") {
  for (const Duration later : {Duration(0ms), Duration(500ms)}) {
    for (const Duration wait : {Duration(0ms), Duration(10ms)}) {
      Simulator sim({.hosts = 2});
      Guest guest(sim.host(1));
      guest.wait = wait;
      sim.host(1).scope().spawn(guest.listen(later));
      sim.run_for(1ms);
      sim.host(0).scope().spawn(say(sim.host(0), "ab", 3));
      sim.host(0).scope().spawn(say(sim.host(0), std::string(100'000, 'x'), 1));
      sim.run_for(2s);
      CHECK(guest.streams == 2);
      CHECK(guest.ends == 2);
      CHECK(std::ranges::count(guest.heard, 'x') == 100'000);
      CHECK(std::ranges::count(guest.heard, 'b') == 3);
    }
  }
}

class Listening final : public ByteTaker {
 public:
  void on_bytes(Bytes bytes, std::vector<Handle>) override { heard += as_text(bytes); }
  void on_end(Result<void>) override {}
  std::string heard;
};

Task<Result<void>> write_to(Stream& stream, std::string_view text) {
  const Bytes bytes = as_bytes(text);
  co_return co_await stream.write(bytes);
}

// As agents that follow each other read what a process prints.
TEST_CASE("a pipe that somebody else holds too is read by who comes after its taker") {
  Simulator sim({.hosts = 1});
  SimHost& host = sim.host(0);
  auto pipe = host.processes().pipe();
  REQUIRE(pipe);
  auto writer = host.network().adopt(std::move(pipe->writer));
  REQUIRE(writer);
  const auto print = [&](std::string_view text) {
    REQUIRE(sim.run(write_to(**writer, text), 1s));
    sim.run_for(1ms);
  };
  auto first = std::make_unique<Listening>();
  auto thing = host.handles().find(pipe->reader);
  REQUIRE(thing);
  auto reader = host.network().adopt(host.handles().add(std::move(*thing)));
  REQUIRE(reader);
  (*reader)->serve(*first, host.scope(), &host.clock());
  print("one");
  CHECK(first->heard == "one");
  reader->reset();
  first.reset();
  print("two");
  Listening second;
  reader = host.network().adopt(std::move(pipe->reader));
  REQUIRE(reader);
  (*reader)->serve(second, host.scope(), &host.clock());
  print("three");
  CHECK(second.heard == "twothree");
}

class Mourner final : public ExitTaker {
 public:
  void on_exit(const Exit& exit) override { exits.push_back(exit.signal); }
  std::vector<int> exits;
};

Task<int> sleep_long(SimProcess& process) {
  auto slept = co_await process.clock().sleep(1h);
  co_return slept ? 0 : 1;
}

TEST_CASE("the end of a process is told once, also to who asks when it has ended") {
  for (const bool late : {false, true}) {
    Simulator sim({.hosts = 1});
    sim.set_process("sleep", sleep_long);
    SimHost& host = sim.host(0);
    Mourner mourner;
    auto process = host.processes().spawn({.arguments = {"sleep"}});
    REQUIRE(process);
    if (!late) (*process)->tell_exit(mourner, host.scope());
    sim.run_for(1s);
    CHECK(mourner.exits.empty());
    REQUIRE((*process)->signal(SIGKILL));
    sim.run_for(1s);
    if (late) (*process)->tell_exit(mourner, host.scope());
    sim.run_for(1s);
    CHECK(mourner.exits == std::vector<int>{SIGKILL});
  }
}

TEST_CASE("who forgets a process hears nothing of it") {
  Simulator sim({.hosts = 1});
  sim.set_process("sleep", sleep_long);
  Mourner mourner;
  auto process = sim.host(0).processes().spawn({.arguments = {"sleep"}});
  REQUIRE(process);
  (*process)->tell_exit(mourner, sim.host(0).scope());
  const pid_t pid = (*process)->pid();
  process->reset();
  REQUIRE(sim.host(0).processes().signal(pid, SIGKILL));
  sim.run_for(1s);
  CHECK(mourner.exits.empty());
}

TEST_CASE("memory that rests is as it was, for everybody who maps it") {
  Simulator sim({.hosts = 2});
  for (const uint32_t index : {0U, 1U}) {
    Memory& memory = sim.host(index).memory();
    auto arena = memory.create_arena("pages", 2048);
    REQUIRE(arena);
    auto one = memory.map(*arena, 0, 2048, true);
    auto two = memory.map(*arena, 1024, 1024, true);
    REQUIRE(one);
    REQUIRE(two);
    (*one)->bytes()[1030] = std::byte{static_cast<unsigned char>(index + 1)};
    (*one)->rest();
    CHECK((*two)->bytes()[6] == std::byte{static_cast<unsigned char>(index + 1)});
    (*two)->rest();
    (*two)->bytes()[7] = std::byte{9};
    CHECK((*one)->bytes()[1030] == std::byte{static_cast<unsigned char>(index + 1)});
    CHECK((*one)->bytes()[1031] == std::byte{9});
    CHECK((*one)->bytes().size() == 2048);
    CHECK(std::ranges::count((*one)->bytes(), std::byte{0}) == 2046);
  }
}

class Woken final : public WakeTaker {
 public:
  void on_wake(uint64_t tag) override { tags.push_back(tag); }
  std::vector<uint64_t> tags;
};

TEST_CASE("who watches a word is told once that it was woken, also of memory that rests") {
  Simulator sim({.hosts = 1});
  SimHost& host = sim.host(0);
  Memory& memory = host.memory();
  auto arena = memory.create_arena("words", 2048);
  REQUIRE(arena);
  auto ours = memory.map(*arena, 0, 2048, true);
  auto theirs = memory.map(*arena, 1024, 1024, true);
  REQUIRE(ours);
  REQUIRE(theirs);
  Woken woken;
  memory.tell_wake(**ours, 1028, 0, woken, 7, host.scope());
  memory.tell_wake(**ours, 1032, 0, woken, 8, host.scope());
  (*ours)->rest();
  (*theirs)->rest();
  const auto wake = [&](uint64_t offset) {
    auto& word = reinterpret_cast<std::atomic<uint32_t>&>((*theirs)->bytes()[offset]);
    ++word;
    memory.wake_all(word);
    (*theirs)->rest();
    sim.run_for(1ms);
  };
  wake(0);
  CHECK(woken.tags.empty());
  wake(4);
  wake(4);
  CHECK(woken.tags == std::vector<uint64_t>{7});
  memory.tell_wake(**ours, 1028, 0, woken, 9, host.scope());  // it has changed already
  sim.run_for(1ms);
  CHECK(woken.tags == std::vector<uint64_t>{7, 9});
  ours->reset();
  wake(8);
  CHECK(woken.tags == std::vector<uint64_t>{7, 9});
}

}  // namespace
}  // namespace tutti
