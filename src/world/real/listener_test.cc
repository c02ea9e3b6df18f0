#include "world/real/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "world/real/fd.h"
#include "world/real/network_fixture.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {
namespace {

struct UnixFixture : NetworkFixture {
  TemporaryFolder folder;
  const std::string path = folder.path + "/socket";
  const Address address = Address::unix_socket(path);
};

Task<Result<std::unique_ptr<Listener>>> listen_at(Network& network, Address address) {
  auto listener = co_await network.listen(address);
  co_return listener;
}

TEST_CASE_FIXTURE(NetworkFixture, "a port of 0 becomes one that the address tells") {
  auto listener = loop.run(listen_at(network, Address::tcp("127.0.0.1", 0)));
  REQUIRE(listener);
  CHECK((*listener)->address().port != 0);
  auto again = loop.run(listen_at(network, (*listener)->address()));
  REQUIRE(!again);
  CHECK(again.error().code() == Code::exists);
  CHECK(again.error().text().find((*listener)->address().text()) != std::string::npos);
}

TEST_CASE_FIXTURE(UnixFixture, "a Unix socket is for its owner alone and its path goes with it") {
  auto listener = loop.run(listen_at(network, address));
  REQUIRE_MESSAGE(listener, listener.error().text());
  struct stat info;
  REQUIRE(lstat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  listener->reset();
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE_FIXTURE(UnixFixture, "a path somebody listens at is left alone") {
  auto listener = loop.run(listen_at(network, address));
  REQUIRE(listener);
  auto second = loop.run(listen_at(network, address));
  REQUIRE(!second);
  CHECK(second.error().code() == Code::exists);
  CHECK(std::filesystem::exists(path));
}

void leave_dead_socket(const std::string& path) {
  const Handle fd = own_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto raw = SocketAddress::unix_socket(path);
  REQUIRE(bind(fd.number(), raw->raw(), raw->size) == 0);
}

TEST_CASE_FIXTURE(UnixFixture, "a path left behind by the dead is taken over") {
  leave_dead_socket(path);
  auto listener = loop.run(listen_at(network, address));
  CHECK_MESSAGE(listener, listener.error().text());
}

TEST_CASE_FIXTURE(UnixFixture, "a listener does not remove a path that became another's") {
  auto listener = loop.run(listen_at(network, address));
  REQUIRE(listener);
  std::filesystem::remove(path);
  std::ofstream(path) << "somebody else's";
  listener->reset();
  CHECK(std::filesystem::exists(path));
}

TEST_CASE_FIXTURE(UnixFixture, "a file that is not a socket is never replaced") {
  std::ofstream(path) << "precious";
  auto listener = loop.run(listen_at(network, address));
  REQUIRE(!listener);
  CHECK(listener.error().code() == Code::exists);
  CHECK(std::filesystem::file_size(path) == 8);
}

TEST_CASE_FIXTURE(UnixFixture, "a path in a folder that is not there, or too long, says so") {
  auto nowhere = loop.run(listen_at(network, Address::unix_socket(folder.path + "/no/socket")));
  CHECK(nowhere.error().code() == Code::not_found);
  const std::string long_path = folder.path + "/" + std::string(200, 'x');
  auto too_long = loop.run(listen_at(network, Address::unix_socket(long_path)));
  CHECK(too_long.error().code() == Code::invalid);
}

Task<void> listen_and_count(Network& network, Address address, int& listening, int& refused,
                            std::vector<std::unique_ptr<Listener>>& kept) {
  auto listener = co_await network.listen(address);
  if (listener) {
    ++listening;
    kept.push_back(std::move(*listener));
  } else if (listener.error().code() == Code::exists) {
    ++refused;
  }
}

Task<void> race_for(Network& network, Address address, int& listening, int& refused) {
  std::vector<std::unique_ptr<Listener>> kept;
  Scope scope;
  for (int i = 0; i < 8; ++i)
    scope.spawn(listen_and_count(network, address, listening, refused, kept));
  auto joined = co_await scope.join();
  CHECK(joined);
}

TEST_CASE_FIXTURE(UnixFixture, "of those who take over a dead path at once, one wins") {
  leave_dead_socket(path);
  int listening = 0;
  int refused = 0;
  loop.run(race_for(network, address, listening, refused));
  CHECK(listening == 1);
  CHECK(refused == 7);
}

Task<void> accept_in_vain(Loop& loop, Network& network) {
  const Address address = Address::tcp("127.0.0.1", 0);
  auto listener = co_await network.listen(address);
  REQUIRE(listener);
  auto accept = (*listener)->accept();
  auto accepted = co_await with_deadline(loop.clock(), loop.clock().now() + 5ms, std::move(accept));
  REQUIRE(!accepted);
  CHECK(accepted.error().code() == Code::deadline);
  const Address at = (*listener)->address();
  auto client = co_await network.connect(at);
  CHECK(client);
  auto server = co_await (*listener)->accept();
  CHECK(server);
}

TEST_CASE_FIXTURE(NetworkFixture, "a cancelled accept loses no connection") {
  loop.run(accept_in_vain(loop, network));
}

// With no descriptor left for the connection, then with one.
Task<void> accept_when_full(Loop& loop, Network& network, Address address) {
  auto listener = co_await network.listen(address);
  REQUIRE(listener);
  const Address at = (*listener)->address();
  auto client = co_await network.connect(at);
  REQUIRE(client);
  DescriptorLimit limit(0);
  const Instant from = loop.clock().now();
  for (int i = 0; i < 3; ++i) {
    auto accepted = co_await (*listener)->accept();
    REQUIRE(!accepted);
    CHECK(accepted.error().code() == Code::exhausted);
    CHECK(accepted.error().text().find("ulimit -n") != std::string::npos);
  }
  CHECK(loop.clock().now() - from >= 40ms);  // it paused before each try but the first
  limit.lift();
  auto accepted = co_await (*listener)->accept();
  CHECK_MESSAGE(accepted, accepted.error().text());
}

TEST_CASE_FIXTURE(UnixFixture, "a listener survives having no descriptors, without spinning") {
  SUBCASE("TCP") { loop.run(accept_when_full(loop, network, Address::tcp("127.0.0.1", 0))); }
  SUBCASE("Unix") { loop.run(accept_when_full(loop, network, address)); }
}

Task<void> open_without_descriptors(Network& network) {
  DescriptorLimit limit(0);
  const Address address = Address::tcp("127.0.0.1", 0);
  auto listener = co_await network.listen(address);
  CHECK(listener.error().code() == Code::exhausted);
  const Address nobody = Address::tcp("127.0.0.1", 1);
  auto stream = co_await network.connect(nobody);
  CHECK(stream.error().code() == Code::exhausted);
  CHECK(network.pair().error().code() == Code::exhausted);
}

TEST_CASE_FIXTURE(NetworkFixture, "listen, connect and pair say when descriptors are exhausted") {
  loop.run(open_without_descriptors(network));
}

}  // namespace
}  // namespace tutti
