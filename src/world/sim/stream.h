// One end of a simulated connection: TCP between hosts, Unix streams, pipes and terminals within.
//
// Bytes travel as packets in one queue per direction, owned by the end they go to: first those that
// arrived and are not read, then those in flight. Order within a stream is kept whatever the
// network does. At most kWindow bytes are in that queue; then the writer waits.
//
// A host that crashes sends nothing: the other end learns of it only when it has something to say,
// by a reset once the host is back, or by giving up after kGiveUp. A cut path delays what is sent
// until a retry finds it mended.
#pragma once

#include <memory>

#include "world/sim/packet.h"
#include "world/stream.h"

namespace tutti {

class SimHost;

class SimStream final : public Stream {
 public:
  static constexpr uint32_t kWindow = 256 << 10;
  static constexpr uint32_t kSegment = 64 << 10;    // a write is cut into packets of at most this
  static constexpr int64_t kRetryNs = 200'000'000;  // the first retransmission, then doubled
  static constexpr int64_t kLongestRetryNs = 2'000'000'000;
  static constexpr int64_t kGiveUpNs = 15'000'000'000;

  struct Pair {
    std::unique_ptr<SimStream> a;
    std::unique_ptr<SimStream> b;
  };
  static Pair connect(SimHost& a, SimHost& b);
  // b can only be read, a only written.
  static Pair pipe(SimHost& host);
  ~SimStream() override;

  // Asks for what reading a packet and answering it will touch.
  void prefetch();
  void set_peer_credentials(Credentials credentials);

  void serve(ByteTaker& taker, Scope& scope, Clock* clock) override;
  void forget_taker(const ByteTaker& taker) {
    if (taker_ == &taker) taker_ = nullptr;
  }
  Result<void> shutdown_write() override;
  Result<Credentials> peer_credentials() const override;
  bool try_read(Read& read) override;
  void park_read(Read& read) override;
  void withdraw_read(Read& read) override { read.unlink(); }
  bool try_write(Write& write) override;
  void park_write(Write& write) override;
  void withdraw_write(Write& write) override { write.unlink(); }

 private:
  friend class Packet;
  class Stall;
  enum class Failure : unsigned char { none, reset, timed_out };

  SimStream(SimHost& host, uint32_t remote) : host_(&host), remote_(remote) {}

  // The sending half.
  bool send_some(Write& write);
  void send_data(Write& write, size_t room);
  void send(Packet* packet);
  void fail_now(Failure failure);
  Error failure_error() const;
  // The receiving half.
  void enqueue(Packet* packet, int64_t arrives_ns);
  void arrived(Packet& packet);
  bool finish_read(Read& read);
  void give_to_taker();
  size_t copy_out(Read& read);
  void give_room();
  // What a quiet stream has not, and of those there are many.
  struct Traffic {
    bool over() const { return head == nullptr && readers.empty() && writers.empty(); }
    Packet* head = nullptr;
    Packet* last_arrived = nullptr;
    Packet* tail = nullptr;
    List<Read> readers;
    List<Write> writers;  // more than one only where processes share an end
  };
  Traffic& traffic() {
    if (traffic_ == nullptr) traffic_ = new Traffic;
    return *traffic_;
  }
  void rest();
  bool has_readers() const { return traffic_ != nullptr && !traffic_->readers.empty(); }
  bool has_writers() const { return traffic_ != nullptr && !traffic_->writers.empty(); }
  bool has_arrived() const { return traffic_ != nullptr && traffic_->last_arrived != nullptr; }
  Packet* first_in_flight() const {
    if (traffic_ == nullptr) return nullptr;
    return traffic_->last_arrived ? traffic_->last_arrived->next : traffic_->head;
  }
  void pop_head();
  void drop_in_flight(int64_t leaving_after_ns);
  // Trouble on the way.
  Stall& stall();
  void stall_incoming();
  void stall_outgoing();
  void check_stall();
  bool check_incoming();
  bool check_outgoing();
  void resend_in_flight();
  bool cut(bool towards_peer) const;
  void disconnect();
  void leave_orderly();
  void leave_silently();

  SimHost* host_;
  SimStream* peer_ = nullptr;  // nullptr when it is gone, whether or not we know
  Traffic* traffic_ = nullptr;
  ByteTaker* taker_ = nullptr;  // in place of readers
  Scope* taker_scope_ = nullptr;
  Stall* stall_ = nullptr;
  int64_t last_arrival_ns_ = 0;
  uint32_t remote_;       // the peer's host
  uint32_t queued_ = 0;   // bytes in the queue
  uint32_t unheard_ = 0;  // bytes written since the peer is gone
  uint32_t peer_uid_ = 0;
  int32_t peer_pid_ = -1;  // of a Unix stream
  Failure failure_ = Failure::none;
  bool ended_ = false;  // the peer's last byte was read
  bool shut_ = false;   // we write no more
  bool room_coming_ = false;
};

// A stream that other handles refer to as well, in this process or another.
class AdoptedStream final : public Stream {
 public:
  explicit AdoptedStream(std::shared_ptr<SimStream> inner) : inner_(std::move(inner)) {}
  // The stream may live on: what comes is for others then.
  ~AdoptedStream() override {
    if (taker_ != nullptr) inner_->forget_taker(*taker_);
  }
  const std::shared_ptr<SimStream>& inner() const { return inner_; }

  void serve(ByteTaker& taker, Scope& scope, Clock* clock) override {
    taker_ = &taker;
    inner_->serve(taker, scope, clock);
  }
  Result<void> shutdown_write() override { return inner_->shutdown_write(); }
  Result<Credentials> peer_credentials() const override { return inner_->peer_credentials(); }

 private:
  bool try_read(Read& read) override { return inner_->try_read(read); }
  void park_read(Read& read) override { inner_->park_read(read); }
  void withdraw_read(Read& read) override { inner_->withdraw_read(read); }
  bool try_write(Write& write) override { return inner_->try_write(write); }
  void park_write(Write& write) override { inner_->park_write(write); }
  void withdraw_write(Write& write) override { inner_->withdraw_write(write); }

  std::shared_ptr<SimStream> inner_;
  const ByteTaker* taker_ = nullptr;
};

}  // namespace tutti
