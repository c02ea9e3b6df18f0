#include "world/real/adopt.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "world/real/fd.h"
#include "world/real/network_fixture.h"

namespace tutti {
namespace {

struct PipeFixture : NetworkFixture {
  std::unique_ptr<Stream> reader;
  std::unique_ptr<Stream> writer;
  PipeFixture() {
    int fds[2];
    REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
    reader = network.adopt(own_fd(fds[0])).value();
    writer = network.adopt(own_fd(fds[1])).value();
  }
};

Task<void> write_and_close(Stream& stream, std::string text) {
  co_await write_text(stream, text);
  CHECK(stream.shutdown_write());
}

Task<void> through_pipe(Stream& reader, Stream& writer) {
  const std::string text(1 << 20, 'p');
  Scope scope;
  scope.spawn(write_and_close(writer, text));
  auto heard = co_await read_text(reader, text.size() + 1);
  CHECK(heard == text);
  auto joined = co_await scope.join();
  CHECK(joined);
}

TEST_CASE_FIXTURE(PipeFixture, "a pipe is a stream, and closing its writing end is its end") {
  loop.run(through_pipe(*reader, *writer));
}

Task<void> write_to_nobody(Stream& writer) {
  const std::string text = "anybody?";
  auto written = co_await write_once(writer, text);
  REQUIRE(!written);
  CHECK(written.error().code() == Code::unavailable);
}

TEST_CASE_FIXTURE(PipeFixture, "a write to a pipe nobody reads fails and signals nothing") {
  reader.reset();
  loop.run(write_to_nobody(*writer));
}

Task<void> park_then_lose_reader(std::unique_ptr<Stream>& reader, Stream& writer) {
  Scope scope;
  const std::string much(1 << 20, 'x');
  scope.spawn(write_once(writer, much));
  for (int i = 0; i < 10; ++i) co_await yield();
  reader.reset();
  auto joined = co_await scope.join();
  REQUIRE(!joined);
  CHECK(joined.error().code() == Code::unavailable);
}

TEST_CASE_FIXTURE(PipeFixture, "a parked write ends when its reader goes") {
  loop.run(park_then_lose_reader(reader, *writer));
}

struct TestTerminal {
  Handle ours;
  Handle theirs;
  TestTerminal() {
    int master, slave;
    REQUIRE(openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
    ours = own_fd(master);
    theirs = own_fd(slave);
  }
};

Task<void> read_terminal(Network& network) {
  TestTerminal terminal;
  auto ours = network.adopt(std::move(terminal.ours));
  REQUIRE(ours);
  REQUIRE(::write(terminal.theirs.number(), "printed\n", 8) == 8);
  terminal.theirs.close();
  auto text = co_await read_text(**ours, 100);
  CHECK(text == "printed\r\n");
  auto end = co_await read_once(**ours);
  CHECK(end.value() == 0);
  CHECK((*ours)->shutdown_write().error().code() == Code::unsupported);
}

TEST_CASE_FIXTURE(NetworkFixture, "a terminal whose other end was closed has ended") {
  loop.run(read_terminal(network));
}

TEST_CASE_FIXTURE(NetworkFixture, "adopting a terminal does not change it for those who share it") {
  TestTerminal terminal;
  const Handle shared = own_fd(dup(terminal.theirs.number()));
  auto adopted = network.adopt(std::move(terminal.theirs));
  REQUIRE(adopted);
  CHECK((fcntl(shared.number(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE_FIXTURE(NetworkFixture, "what cannot be opened anew is as it was when we are done") {
  TestTerminal terminal;
  const Handle shared = own_fd(dup(terminal.ours.number()));  // opening it makes a new terminal
  const int before = fcntl(shared.number(), F_GETFL);
  {
    auto adopted = network.adopt(std::move(terminal.ours));
    REQUIRE(adopted);
    CHECK((fcntl(shared.number(), F_GETFL) & O_NONBLOCK) != 0);
  }
  CHECK(fcntl(shared.number(), F_GETFL) == before);
}

TEST_CASE_FIXTURE(NetworkFixture, "what is not a stream is refused with what it is") {
  const struct {
    int fd;
    const char* word;
  } cases[] = {
      {open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "file"},
      {open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "file"},
      {open("/dev/null", O_RDWR | O_CLOEXEC), "file"},
      {socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), "not of a stream"},
  };
  for (const auto& [fd, word] : cases) {
    auto adopted = network.adopt(own_fd(fd));
    REQUIRE(!adopted);
    CHECK(adopted.error().code() == Code::unsupported);
    CHECK(adopted.error().text().find(word) != std::string::npos);
  }
}

TEST_CASE_FIXTURE(NetworkFixture, "adopting a closed descriptor is an error") {
  CHECK(!network.adopt(Handle{}));
}

}  // namespace
}  // namespace tutti
