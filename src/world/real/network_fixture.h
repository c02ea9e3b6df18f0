// What tests of the real network share: a loop with a network that must not leak descriptors, a
// folder that is removed, and coroutines that move text.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "world/real/network.h"

namespace tutti {

inline size_t count_entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
inline size_t open_descriptors() { return count_entries("/proc/self/fd"); }
inline size_t running_threads() { return count_entries("/proc/self/task"); }

struct LeakCheck {
  size_t before = open_descriptors();
  ~LeakCheck() { CHECK(open_descriptors() == before); }
};

struct NetworkFixture {
  LeakCheck leaks;
  Loop loop;
  RealNetwork network{loop};
};

// Allows at most this many descriptors more than are open now, until it dies.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(size_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(0);
    close(lowest_free);
    const rlimit low{static_cast<size_t>(lowest_free) + more, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  }
  ~DescriptorLimit() { lift(); }
  void lift() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

struct Connection {
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Stream> client;
  std::unique_ptr<Stream> server;
};

inline Task<Connection> make_connection(Network& network, Address address) {
  auto listener = co_await network.listen(address);
  REQUIRE_MESSAGE(listener, listener.error().text());
  const Address at = (*listener)->address();
  auto client = co_await network.connect(at);
  REQUIRE_MESSAGE(client, client.error().text());
  auto server = co_await (*listener)->accept();
  REQUIRE_MESSAGE(server, server.error().text());
  co_return Connection{std::move(*listener), std::move(*client), std::move(*server)};
}

inline Task<void> write_text(Stream& stream, std::string text) {
  auto written = co_await stream.write(as_bytes(text));
  CHECK_MESSAGE(written, written.error().text());
}

// Up to `limit` bytes, fewer at the end of the stream.
inline Task<std::string> read_text(Stream& stream, size_t limit) {
  std::string text(limit, '\0');
  size_t size = 0;
  while (size < limit) {
    const MutableBytes room = as_mutable_bytes(text).subspan(size);
    auto count = co_await stream.read(room);
    CHECK_MESSAGE(count, count.error().text());
    if (!count || *count == 0) break;
    size += *count;
  }
  text.resize(size);
  co_return text;
}

// One read, for its result.
inline Task<Result<size_t>> read_once(Stream& stream) {
  std::byte byte;
  auto count = co_await stream.read({&byte, 1});
  co_return count;
}

inline Task<Result<void>> write_once(Stream& stream, std::string text) {
  auto written = co_await stream.write(as_bytes(text));
  co_return written;
}

}  // namespace tutti
