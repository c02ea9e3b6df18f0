// Messages, one way and the other, over a sealed stream; no calls and no answers. What a tree of a
// million hosts keeps open between them: an idle one is a few hundred bytes and one coroutine.
//
//   auto greeted = co_await Courier::greet(clock, stream, seal, side, options);
//   auto ended = co_await greeted->courier->run(taker, scope);
//   … courier->post(bytes);
//
// Messages arrive in order, whole, and once, or the courier ends; nobody is told which were lost.
// Whatever is queued goes out in one write, by a strand that lives only while there is something to
// send. To cut a courier off, cancel the scope it runs in. Handshake, hello and frames are those of
// a Connection (docs/wire.md); `message` frames carry messages, `data` frames the earlier pieces of
// long ones.
#pragma once

#include <memory>
#include <string>

#include "wire/hello.h"
#include "world/scope.h"

namespace tutti::wire {

// Gets what a courier brings; must not destroy the courier.
class MessageTaker {
 public:
  // The bytes live during the call only. An error ends the courier.
  virtual Result<void> take(Bytes message) = 0;
  // The last thing a courier does in run().
  virtual void ended(const Error& why) = 0;

 protected:
  ~MessageTaker() = default;
};

class Courier final : private DataSink {
 public:
  struct Greeted;
  static Task<Result<Greeted>> greet(Clock& clock, std::unique_ptr<Stream> stream,
                                     std::unique_ptr<Seal> seal, Side side,
                                     ConnectionOptions options);
  ~Courier() = default;

  // Brings messages until the stream ends (Code::unavailable) or somebody errs. Once, in a strand
  // of `scope`, in which the strands that write are spawned too; destroy it when they are gone.
  Task<Result<void>> run(MessageTaker& taker, Scope& scope);

  // In line to be sent; ignored after run(). An empty one is a sign of life. False when more than
  // max_queued would wait: such a peer does not read and should be cut off.
  bool post(Bytes message);
  size_t queued() const { return filling_.size() + writing_.size(); }

  // Grows with everything that is received, pieces of messages too: who listens for signs of life
  // compares it with what it was.
  uint32_t heard() const { return heard_; }

 private:
  Courier(std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal, const Limits& limits);
  Result<MutableBytes> place(const FrameHeader& header) override;
  Result<void> give(const Frame& frame, MessageTaker& taker);
  Result<void> give_all(MessageTaker& taker);
  void start_writing();
  Task<void> write_out();
  void add_frame(FrameType type, Bytes payload);

  FrameReader reader_;
  Link link_;
  Buffer filling_;
  Buffer writing_;
  std::string partial_;     // the pieces of a long message that came
  Scope* scope_ = nullptr;  // while run() runs
  uint64_t max_message_;
  uint64_t max_queued_;
  uint32_t heard_ = 0;
  bool is_writing_ = false;
  bool over_ = false;
};

struct Courier::Greeted {
  std::unique_ptr<Courier> courier;
  Peer peer;
};

}  // namespace tutti::wire
