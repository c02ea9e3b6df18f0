// The connections of one link while they live: frames out, by priority, and in, to where they
// belong.
//
// Small frames go over the first connection, in order. Large messages stay where they are:
// whichever connection is free takes the next piece of what is most urgent. A piece that comes is
// received right where it belongs. Connections live and die together; whoever owns the bundle makes
// another.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/tcp_handshake.h"
#include "wire/buffer.h"
#include "world/alarm.h"
#include "world/carrier.h"
#include "world/scope.h"

namespace tutti::tcp {

// Bytes that go out piece by piece. Belongs to an operation, and leaves the bundle when it dies.
class Flow : public ListNode {
 public:
  Frame frame;  // of every piece, apart from its offset
  Bytes bytes;
  std::optional<Strides> apart;  // from where bytes begin; they are put together piece by piece
  uint64_t next = 0;             // the piece to be sent next; bytes.size(): none
};

class Bundle;

// Gets what comes, and is asked for what is to go.
class FrameTaker {
 public:
  // Where this piece belongs, frame.length bytes that live until the bundle dies or is told to
  // abandon(frame.id); nothing where nobody wants it.
  virtual Result<MutableBytes> place(const Frame& frame) = 0;
  // A whole frame that is as it was sent. Of a piece the payload is empty; `landed` says whether it
  // is in its place.
  virtual Result<void> take(const Frame& frame, Bytes payload, bool landed) = 0;
  // Before each batch: may send() until queued() is large enough.
  virtual void fill(Bundle& bundle) = 0;

 protected:
  ~FrameTaker() = default;
};

class Bundle {
 public:
  Bundle(World& world, FrameTaker& taker, TcpCounters& counters);
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // Before run(): one after the other.
  void add(std::unique_ptr<Stream> stream, const Key& out, const Key& in, Protection protection);

  // Until a connection ends, a frame is refused, or the strand is cancelled.
  Task<Result<void>> run();

  // A small frame, in line. The payload is copied.
  void send(const Frame& frame, Bytes payload = {});
  // Bytes of small frames that wait to be written.
  size_t queued() const { return connections_.front()->filling.size(); }
  // Whether all of them were.
  bool idle() const { return queued() == 0 && connections_.front()->writing.empty(); }
  // There is something for fill() to give.
  void wake() { connections_.front()->work.ring(); }

  void start(Flow& flow);
  // Its bytes are not looked at from here on.
  void withdraw(Flow& flow);
  // What is being received for it goes nowhere: the place is not written from here on.
  void abandon(uint64_t id);

  // Grows whenever something is received.
  uint64_t heard() const { return heard_; }

 private:
  static constexpr size_t kPriorities = 3;

  struct Connection {
    Connection(Clock& clock, std::unique_ptr<Stream> stream, const Key& out, const Key& in,
               Protection protection)
        : stream(std::move(stream)),
          carried(dynamic_cast<CarriedStream*>(this->stream.get())),
          sealer(out, protection),
          opener(in, protection),
          work(clock) {}

    std::unique_ptr<Stream> stream;
    CarriedStream* carried;  // the same, if others may look at our buffers
    Sealer sealer;
    Opener opener;
    // Out.
    Alarm work;
    wire::Buffer filling;
    wire::Buffer writing;
    std::array<std::byte, kFrameBytes + 16> header;
    std::array<Bytes, 3> parts;             // small frames, header and payload of a piece
    Flow* sending = nullptr;                // whose piece is being written from where it lies
    std::unique_ptr<std::byte[]> own;       // a piece that is encrypted, or withdrawn
    std::unique_ptr<std::byte[]> together;  // a piece of what lies apart
    // In.
    wire::Buffer inbox;
    wire::ReadSize read_size;
    bool in_bulk = false;                  // a piece came last: another may follow
    MutableBytes landing;                  // what is left of the place of the piece that comes
    uint64_t landing_id = 0;               // whose it is; 0: nobody's
    Stream::Read* reading = nullptr;       // into it
    std::unique_ptr<std::byte[]> nowhere;  // where pieces go that nobody wants
  };
  class Reading;

  Task<Result<void>> read_loop(Connection& from);
  Task<Result<void>> read_more(Connection& from, size_t wanted);
  Task<Result<void>> land(Connection& from, Frame frame);
  Task<Result<void>> write_loop(Connection& to);
  bool take_batch(Connection& to);
  void take_piece(Connection& to);
  Flow* next_flow();
  Result<void> counted(Result<void> checked);
  bool first(const Connection& connection) const { return &connection == connections_[0].get(); }

  World& world_;
  FrameTaker& taker_;
  TcpCounters& counters_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::array<List<Flow>, kPriorities> flows_;
  uint64_t heard_ = 0;
};

}  // namespace tutti::tcp
