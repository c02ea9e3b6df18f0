// A World of streams in memory and a clock that tests move: for tests of what connects and accepts.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "wire/memory_stream.h"
#include "world/manual_clock.h"
#include "world/semaphore.h"
#include "world/world.h"

namespace tutti::wire {

// Gives what tests and connecting clients put into it.
class MemoryListener final : public Listener {
 public:
  explicit MemoryListener(Address address) : address_(std::move(address)) {}

  const Address& address() const override { return address_; }
  Task<Result<std::unique_ptr<Stream>>> accept() override {
    auto arrived = co_await arrived_.acquire();
    if (!arrived) co_return fail(arrived.error());
    auto first = std::move(waiting_.front());
    waiting_.pop_front();
    co_return first;
  }
  void arrive(Result<std::unique_ptr<Stream>> stream) {
    waiting_.push_back(std::move(stream));
    arrived_.release();
  }
  size_t backlog() const { return waiting_.size(); }

 private:
  Address address_;
  Semaphore arrived_{0};
  std::deque<Result<std::unique_ptr<Stream>>> waiting_;
};

class MemoryNetwork final : public Network {
 public:
  struct Link {
    std::shared_ptr<MemoryPipe> to_server;
    std::shared_ptr<MemoryPipe> to_client;
  };

  Task<Result<std::unique_ptr<Listener>>> listen(Address) override {
    co_return fail(Code::unsupported, "tests make their listeners");
  }
  Task<Result<std::unique_ptr<Stream>>> connect(Address address) override {
    ++tries;
    if (listener == nullptr)
      co_return fail(Code::unavailable, "nobody listens at {}", address.text());
    Link link{std::make_shared<MemoryPipe>(kPipeBytes), std::make_shared<MemoryPipe>(kPipeBytes)};
    links.push_back(link);
    listener->arrive(std::make_unique<MemoryStream>(link.to_server, link.to_client));
    co_return std::make_unique<MemoryStream>(link.to_client, link.to_server);
  }
  Result<Pair> pair() override { return fail(Code::unsupported, "no pairs in memory"); }
  Result<std::unique_ptr<Stream>> adopt(Handle) override {
    return fail(Code::unsupported, "no handles in memory");
  }

  MemoryListener* listener = nullptr;
  int tries = 0;
  std::vector<Link> links;  // in the order they were made

 private:
  static constexpr size_t kPipeBytes = 64 * 1024;
};

// The same numbers every time.
class SteadyRandom final : public Random {
 public:
  uint64_t next() override { return (state_ += 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93; }
  void fill(MutableBytes bytes) override {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next() >> 56);
  }

 private:
  uint64_t state_ = 1;
};

class MemoryWorld final : public World {
 public:
  ManualClock& clock() override { return clock_; }
  MemoryNetwork& network() override { return network_; }
  Random& random() override { return random_; }
  const std::string& host_name() const override { return host_name_; }
  bool fault(CodePlace&) override { return false; }
  Disk& disk() override { return none<Disk>(); }
  Processes& processes() override { return none<Processes>(); }
  Memory& memory() override { return none<Memory>(); }

 private:
  template <class T>
  static T& none() {
    TUTTI_ASSERT(false, "this world has a clock and a network");
    return *static_cast<T*>(nullptr);
  }
  ManualClock clock_;
  MemoryNetwork network_;
  SteadyRandom random_;
  std::string host_name_ = "memory";
};

// What is logged while it lives, in place of standard error.
class LogLines {
 public:
  LogLines() {
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogLines() { set_log_sink(nullptr); }
  size_t count(std::string_view words) const {
    size_t count = 0;
    for (const std::string& line : lines_) count += line.find(words) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace tutti::wire
