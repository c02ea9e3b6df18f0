// A Carrier over UCX: RDMA where the machine has it, else whatever UCX finds, such as its own TCP.
//
//   TRY(auto carrier, UcxCarrier::open(world));
//
// One worker of UCX, driven by the loop of one thread: UCX's descriptor says when there is
// something to do, and while operations are under way it is asked every millisecond besides. All
// streams between two processes share an endpoint. Messages are UCX's active messages; what is
// large is fetched by its reader, from where it lies to where it belongs (UCX's rendezvous).
//
// UCX calls us back only while it is asked for progress. There we note what happened; it is acted
// upon afterwards.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "world/alarm.h"
#include "world/carrier.h"
#include "world/real/loop.h"
#include "world/real/real_world.h"
#include "world/real/ucx/ucx_library.h"

namespace tutti {

class UcxCarrier;
class UcxStream;

// Another process, for as long as a stream or the last words of one need it.
struct UcxPeer {
  UcxPeer(UcxCarrier& carrier, std::string address)
      : carrier(carrier), address(std::move(address)) {}
  ~UcxPeer();
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;

  UcxCarrier& carrier;
  std::string address;  // of its worker
  ucp_ep_h endpoint = nullptr;
  uint32_t operations = 0;  // of UCX, with memory of ours
  std::vector<UcxStream*> streams;
};

// The connection that a stream came from. It outlives its stream for a moment, until the other side
// has read to the end.
struct UcxTether {
  UcxTether(Clock& clock, std::unique_ptr<Stream> connection, std::shared_ptr<UcxPeer> peer,
            UcxStream* stream)
      : connection(std::move(connection)), peer(std::move(peer)), stream(stream), ended(clock) {}
  ~UcxTether() { strand.kill(); }
  UcxTether(const UcxTether&) = delete;
  UcxTether& operator=(const UcxTether&) = delete;

  std::unique_ptr<Stream> connection;
  std::shared_ptr<UcxPeer> peer;
  UcxStream* stream;  // while it lives
  Alarm ended;
  Scope strand{Scope::Root{}};  // who listens
};

// Before every message.
struct UcxHeader {
  enum class Kind : uint64_t { data, credit };
  uint64_t end = 0;     // of the receiver
  uint64_t number = 0;  // of the data, from 0; or how many bytes were read
  Kind kind = Kind::data;
};

class UcxCarrier final : public Carrier, private Watch {
 public:
  // From the loop's thread.
  static Result<std::unique_ptr<UcxCarrier>> open(RealWorld& world);
  ~UcxCarrier() override;  // after stop(), or where nothing was made

  std::string_view name() const override { return "ucx"; }
  Result<std::unique_ptr<CarriedStream>> make_end() override;
  Task<void> stop() override;
  const UcxLibrary& ucx() const { return *ucx_; }

  // ---- For streams and peers ----
  Bytes address() const { return as_bytes(address_); }
  ucp_worker_h worker() const { return worker_; }
  Clock& clock() const { return world_.clock(); }
  // Where it already is, or a new endpoint.
  Result<std::shared_ptr<UcxPeer>> peer(std::string address);
  void forget_end(uint64_t end) { ends_.erase(end); }
  void listen(UcxTether& tether);
  void bury(std::unique_ptr<UcxTether> tether);

  // A message that is copied. Its end is nobody's business.
  Result<void> send_copy(UcxPeer& peer, const UcxHeader& header, std::string bytes);
  // An operation of UCX that holds memory of ours began, or ended.
  void began(UcxPeer& peer);
  void ended(UcxPeer& peer);

  // From UCX's callbacks: a stream has something to do; a peer is lost.
  void ready(uint64_t end) { ready_.push_back(end); }
  void lost(UcxPeer& peer, Error why) { lost_.emplace_back(&peer, std::move(why)); }
  // Not from a callback: asks UCX until this is false, or the time is up.
  void progress_while(const bool& busy, Duration longest);
  // Not from a callback: no memory of ours is used for this peer any more, and all its streams
  // fail.
  void break_off(UcxPeer& peer, const Error& why);
  // Without telling the streams.
  void close(UcxPeer& peer);

 private:
  struct Copy;
  UcxCarrier(RealWorld& world, const UcxLibrary& ucx)
      : world_(world), ucx_(&ucx), work_(world.clock()) {}
  Result<void> start();
  Result<void> start_worker();
  void on_ready(uint32_t events) override;
  unsigned progress();
  void pump();
  void shut_down();
  void settle();
  Task<void> serve();
  Task<void> hear(UcxTether& tether);
  Task<void> bury_strand(std::unique_ptr<UcxTether> tether);
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_copy_sent(void* request, ucs_status_t status, void* copy);
  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  RealWorld& world_;
  const UcxLibrary* ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  uint64_t next_end_ = 1;
  std::map<uint64_t, UcxStream*> ends_;
  std::map<std::string, std::weak_ptr<UcxPeer>> peers_;  // by address
  std::vector<uint64_t> ready_;
  std::vector<std::pair<UcxPeer*, Error>> lost_;
  uint64_t operations_ = 0;
  bool again_ = false;   // UCX has more to do at once
  bool inside_ = false;  // UCX is being asked
  Alarm work_;
  Scope server_{Scope::Root{}};   // who asks UCX
  Scope burials_{Scope::Root{}};  // last words of streams
};

}  // namespace tutti
