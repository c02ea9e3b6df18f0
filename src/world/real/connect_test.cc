#include "world/real/connect.h"

#include <sys/socket.h>
#include <unistd.h>

#include "world/real/fd.h"
#include "world/real/network_fixture.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {
namespace {

Task<Result<void>> try_connect(Network& network, Address address) {
  auto stream = co_await network.connect(address);
  if (!stream) co_return fail(std::move(stream).error());
  co_return Result<void>{};
}

// A listening socket outside of the loop, which accepts only when told to.
struct RawListener {
  Handle fd;
  Address address;

  RawListener(const SocketAddress& at, int backlog) {
    fd = own_fd(socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(fd.number(), at.raw(), at.size) == 0);
    REQUIRE(::listen(fd.number(), backlog) == 0);
    address = Address::parse(SocketAddress::local(fd.number()).text()).value();
  }
  Handle accept() const { return own_fd(accept4(fd.number(), nullptr, nullptr, SOCK_CLOEXEC)); }
};

TEST_CASE_FIXTURE(NetworkFixture, "a refused connection names the address") {
  // Bound but not listening: the port is nobody else's.
  const auto at = SocketAddress::numeric("127.0.0.1", 0);
  const Handle taken = own_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(taken.number(), at->raw(), at->size) == 0);
  const std::string text = SocketAddress::local(taken.number()).text();
  auto connected = loop.run(try_connect(network, Address::parse(text).value()));
  REQUIRE(!connected);
  CHECK(connected.error().code() == Code::unavailable);
  CHECK(connected.error().text().find(text) != std::string::npos);
}

TEST_CASE_FIXTURE(NetworkFixture, "a Unix path that is not there names the path") {
  auto connected = loop.run(try_connect(network, Address::unix_socket("/nowhere/at/all")));
  REQUIRE(!connected);
  CHECK(connected.error().code() == Code::not_found);
  CHECK(connected.error().text().find("/nowhere/at/all") != std::string::npos);
}

Task<Result<void>> connect_for(Loop& loop, Network& network, Address address, Duration time) {
  auto attempt = try_connect(network, address);
  auto connected =
      co_await with_deadline(loop.clock(), loop.clock().now() + time, std::move(attempt));
  co_return connected;
}

TEST_CASE_FIXTURE(NetworkFixture, "a handshake that does not end is cancelled") {
  const RawListener full(*SocketAddress::numeric("127.0.0.1", 0), 0);
  const auto first = loop.run(connect_for(loop, network, full.address, 10s));
  CHECK(first);  // fills the queue; from now on the kernel drops what comes
  const auto second = loop.run(connect_for(loop, network, full.address, 30ms));
  REQUIRE(!second);
  CHECK(second.error().code() == Code::deadline);
}

Task<void> accept_later(Loop& loop, const RawListener& listener) {
  auto slept = co_await loop.clock().sleep(10ms);
  CHECK(slept);
  CHECK(listener.accept().open());
}

Task<void> connect_twice(Loop& loop, Network& network, const RawListener& listener) {
  auto first = co_await network.connect(listener.address);
  REQUIRE(first);
  auto full = co_await connect_for(loop, network, listener.address, 3ms);
  REQUIRE(!full);
  CHECK(full.error().code() == Code::deadline);
  Scope scope;
  scope.spawn(try_connect(network, listener.address));
  scope.spawn(accept_later(loop, listener));
  auto joined = co_await scope.join();
  CHECK_MESSAGE(joined, joined.error().text());
}

TEST_CASE_FIXTURE(NetworkFixture, "a full queue at a Unix path is waited for") {
  TemporaryFolder folder;
  const RawListener listener(*SocketAddress::unix_socket(folder.path + "/s"), 0);
  loop.run(connect_twice(loop, network, listener));
}

Task<void> meet_by_name(Network& network) {
  const Address address = Address::tcp("localhost", 0);
  auto connection = co_await make_connection(network, address);
  CHECK(connection.listener->address().host == "localhost");
  const std::string text = "hello";
  co_await write_text(*connection.client, text);
  auto heard = co_await read_text(*connection.server, text.size());
  CHECK(heard == text);
}

TEST_CASE_FIXTURE(NetworkFixture, "a host is found by its name") {
  loop.run(meet_by_name(network));
}

// No name server is asked: a label has at most 63 letters.
const std::string kNobody = std::string(70, 'n') + ".invalid";

TEST_CASE_FIXTURE(NetworkFixture, "a name that is nobody's says so") {
  auto connected = loop.run(try_connect(network, Address::tcp(kNobody, 80)));
  REQUIRE(!connected);
  CHECK(connected.error().code() == Code::not_found);
  CHECK(connected.error().text().find(kNobody) != std::string::npos);
}

Task<void> look_up_and_cancel(Loop& loop, Network& network, int count) {
  Scope scope;
  for (int i = 0; i < count; ++i) scope.spawn(try_connect(network, Address::tcp(kNobody, 80)));
  auto slept = co_await loop.clock().sleep(count * 20us);  // before, while and after it answers
  CHECK(slept);
  scope.cancel();
  auto joined = co_await scope.join();
  (void)joined;
}

TEST_CASE_FIXTURE(NetworkFixture, "a lookup is cancelled without waiting for its answer") {
  const size_t before = running_threads();
  for (int i = 0; i < 100; ++i) loop.run(look_up_and_cancel(loop, network, i % 8));
  while (running_threads() > before) usleep(1000);  // those left behind end on their own
}

}  // namespace
}  // namespace tutti
