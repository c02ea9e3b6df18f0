// The transport between hosts over TCP: see transport.h for what it does, docs/fabric.md for how.
//
//   CO_TRY(auto transport, co_await TcpTransport::open({.world = world, .rank = 3, …}));
//   transport->begin_epoch(7);
//   auto sent = co_await transport->send(5, {group, 1}, bytes);
//   co_await transport->stop();
//
// Whoever begins something with a rank connects to it, so between two ranks there are up to two
// links, each of one or more connections. Nobody who does not know the job's key gets an answer.
// Everything runs on the strands of one World, without threads; begin_epoch() and stop() too.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "fabric/transport.h"
#include "world/carrier.h"
#include "world/world.h"

namespace tutti {

using JobKey = std::array<std::byte, 32>;

// Where ranks can be reached, epoch by epoch. Both may wait; a failure is tried again.
class AddressBook {
 public:
  virtual ~AddressBook() = default;
  virtual Task<Result<void>> publish(uint64_t epoch, Address address) = 0;
  virtual Task<Result<Address>> find(uint64_t epoch, uint32_t rank) = 0;
};

struct TcpOptions {
  World& world;
  AddressBook& addresses;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  JobKey key{};
  Address listen = Address::tcp("127.0.0.1", 0);  // as others reach it; port 0: any
  // What put and get of others address; outlives the transport.
  MutableBytes heap{};
  // Whether others may put there; unset, nobody may anywhere. Within the heap, always.
  std::function<bool(uint64_t offset, uint64_t bytes)> may_put{};
  uint32_t streams = 1;   // connections of a link that we begin: 1 to 8
  bool checksums = true;  // of what is carried; headers always have one
  bool encrypt = false;   // AES-128-GCM, which is a checksum too
  // Moves the bytes in TCP's place, once a connection has proved itself; for all ranks or none.
  // Outlives the transport.
  Carrier* carrier = nullptr;
};

// What happened since open(), for people and tests.
struct TcpCounters {
  uint64_t links = 0;        // of ours that were made, or made again
  uint64_t broken = 0;       // of those, by the network, the other side or damaged bytes
  uint64_t strangers = 0;    // connections that did not prove themselves, or came too late
  uint64_t corrupt = 0;      // frames that failed a check
  uint64_t resent = 0;       // small messages sent again
  uint64_t duplicates = 0;   // small messages that had come already
  uint64_t unexpected = 0;   // small messages that waited to be received
  uint64_t bytes_sent = 0;   // of payload
  uint64_t bytes_taken = 0;  // of payload
};

namespace tcp {
class Epoch;
struct Context;
struct Welcome;
}  // namespace tcp

class TcpTransport final : public Transport {
 public:
  // Listens.
  static Task<Result<std::unique_ptr<TcpTransport>>> open(TcpOptions options);
  // After stop(), or where a simulated process is killed.
  ~TcpTransport() override;

  // Lets the others know of what is done, for a moment; ends the epoch and closes everything. No
  // call follows.
  Task<void> stop();

  // That of its carrier, if it has one.
  std::string_view name() const override;
  // Each larger than the one before.
  void begin_epoch(uint64_t epoch) override;
  void end_epoch(Error why) override;
  Task<void> refuse(std::vector<uint32_t> ranks, Refusal refusal) override;
  std::vector<uint32_t> left() const override;
  std::optional<uint32_t> left_in(uint64_t scope) const override;
  std::vector<uint32_t> linked() const override;

  // A message that is small is stored where nobody receives it yet, up to a limit per rank: beyond
  // it the send fails with Code::exhausted, and so does every receive from that rank that finds
  // nothing. A cancelled send may still arrive, and a cancelled put may still be written until the
  // epoch ends.
  Task<Result<void>> send(uint32_t rank, Tag tag, Bytes bytes,
                          Priority priority = Priority::normal) override;
  Task<Result<void>> receive(uint32_t rank, Tag tag, MutableBytes into) override;
  // Outside of the heap: Code::invalid. Where nobody may put: Code::denied.
  Task<Result<void>> put(uint32_t rank, uint64_t offset, Bytes from,
                         Priority priority = Priority::normal) override;
  using Transport::get;
  Task<Result<void>> get(uint32_t rank, Strides from, MutableBytes into,
                         Priority priority = Priority::normal, Tag tag = {}) override;

  const TcpCounters& counters() const;
  const Address& address() const { return listener_->address(); }

 private:
  class Door;
  explicit TcpTransport(TcpOptions options);
  Task<void> accept_all();
  Task<void> greet(std::unique_ptr<Stream> stream);
  Task<Result<tcp::Welcome>> let_in(std::unique_ptr<Stream>& stream, Door& door);
  Task<void> bury(std::unique_ptr<tcp::Epoch> epoch);
  Task<void> publish(uint64_t epoch);
  void refused(const Error& why);
  Task<Result<void>> tell_all(std::vector<uint32_t> ranks, uint64_t scope, Bytes told);
  Result<void> check(uint32_t rank, Tag tag) const;

  std::unique_ptr<tcp::Context> context_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<tcp::Epoch> epoch_;
  Error over_;  // why there is no epoch
  uint64_t last_epoch_ = 0;
  uint32_t greeting_ = 0;  // connections that are proving themselves
  LogLimit tell_refused_;
  Scope scope_{Scope::Root{}};
};

}  // namespace tutti
