// Network of one process of a simulated host: listens and connects by name ("host17:7000") or on
// Unix paths of its host.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "world/network.h"
#include "world/sim/stream.h"

namespace tutti {

class SimListener;

constexpr pid_t kFirstPid = 1;  // the process that SimHost itself is

// Who listens where on a host.
class HostPorts {
 public:
  SimListener* find(const Address& address, bool from_outside) const;
  Result<Address> free_port(Address address);
  void add(SimListener& listener) { listeners_.push_back(&listener); }
  void release(const SimListener& listener);
  // Names of Unix sockets that stand in a folder.
  std::vector<std::string> sockets_in(std::string_view folder) const;

 private:
  static constexpr uint16_t kFirstFreePort = 32768;
  bool taken(const Address& address) const;
  std::vector<SimListener*> listeners_;  // few: searched one by one
  uint16_t next_port_ = kFirstFreePort;
};

class SimNetwork final : public Network {
 public:
  static constexpr int64_t kConnectRetryNs = 1'000'000'000;
  static constexpr int64_t kConnectGiveUpNs = 10'000'000'000;

  SimNetwork(SimHost& host, pid_t pid, uid_t user = 0) : host_(&host), pid_(pid), user_(user) {}

  Task<Result<std::unique_ptr<Listener>>> listen(Address address) override;
  Task<Result<std::unique_ptr<Stream>>> connect(Address address) override;
  Result<Pair> pair() override;
  Result<std::unique_ptr<Stream>> adopt(Handle handle) override;

 private:
  Result<uint32_t> resolve(const Address& address) const;
  Credentials credentials() const { return {pid_, user_, user_}; }

  SimHost* host_;
  pid_t pid_;
  uid_t user_;
};

class SimListener final : public Listener {
 public:
  static constexpr size_t kBacklog = 256;  // connections that nobody accepted yet

  SimListener(SimHost& host, Credentials owner) : host_(host), owner_(owner) {}
  ~SimListener() override;
  Result<void> bind(Address address);

  const Address& address() const override { return address_; }
  Task<Result<std::unique_ptr<Stream>>> accept() override;
  void serve(ConnectionTaker& taker, Scope& scope) override;

  const Credentials& owner() const { return owner_; }
  // False when too many wait already.
  bool offer(std::unique_ptr<SimStream> stream);

 private:
  class Accept;
  SimHost& host_;
  Credentials owner_;
  Address address_;
  bool bound_ = false;
  ConnectionTaker* taker_ = nullptr;  // in place of acceptors
  struct Queue {
    std::vector<std::unique_ptr<SimStream>> waiting;
    List<Accept> acceptors;
  };
  Queue& queue() {
    if (queue_ == nullptr) queue_ = std::make_unique<Queue>();
    return *queue_;
  }
  std::unique_ptr<Queue> queue_;  // where there is no taker
};

}  // namespace tutti
