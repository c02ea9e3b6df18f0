// Messages, one way and the other, over a sealed stream; no calls and no answers. What a tree of a
// million hosts keeps open between them: an idle one is a few hundred bytes.
//
//   auto greeted = co_await Courier::greet(clock, stream, seal, side, options);
//   greeted->courier->start(taker, scope);
//   … courier->post(bytes);
//
// Messages arrive in order, whole, and once, or the courier ends; nobody is told which were lost.
// A message goes out at once where the stream takes it; what it does not take is queued and goes
// out in one write, by a strand that lives only while there is something to send. Handshake, hello
// and frames are those of a Connection (docs/wire.md); `message` frames carry messages, `data`
// frames the earlier pieces of long ones.
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
  // The last thing a courier does.
  virtual void ended(const Error& why) = 0;

 protected:
  ~MessageTaker() = default;
};

class Courier final : private DataSink, private ByteTaker {
 public:
  struct Greeted;
  static Task<Result<Greeted>> greet(Clock& clock, std::unique_ptr<Stream> stream,
                                     std::unique_ptr<Seal> seal, Side side,
                                     ConnectionOptions options);
  ~Courier() = default;

  // Brings messages until the stream ends (Code::unavailable) or somebody errs, which fails the
  // scope. Once; its strands are the scope's: destroy it when they are gone.
  void start(MessageTaker& taker, Scope& scope);
  // Ends it soon, as if the stream had failed like this, and cancels its scope.
  void cut(Error why);
  bool over() const { return over_; }

  // In line to be sent; ignored after the end. An empty one is a sign of life. False when more than
  // max_queued would wait: such a peer does not read and should be cut off.
  bool post(Bytes message);
  size_t queued() const {
    return waiting_ == nullptr ? 0 : waiting_->filling.size() + waiting_->writing.size();
  }

  // Grows with everything that is received, pieces of messages too: who listens for signs of life
  // compares it with what it was.
  uint32_t heard() const { return heard_; }

 private:
  Courier(std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal, const Limits& limits);
  Result<MutableBytes> place(const FrameHeader& header) override;
  // Over a stream of plain bytes, of which there may be millions, nobody waits.
  void on_bytes(Bytes bytes, std::vector<Handle> handles) override;
  void on_end(Result<void> why) override;
  Task<void> give_first();
  Task<void> end_soon(Error why);
  Task<void> run_sealed();
  void end(const Error& why);
  Result<void> give(const Frame& frame);
  Result<void> give_all();
  void let_reader_go();
  void start_writing();
  Task<void> write_out();
  void add_frame(FrameType type, Bytes payload);
  bool send_at_once(Bytes header, Bytes payload);
  size_t partial_size() const { return partial_ == nullptr ? 0 : partial_->size(); }
  std::string& partial();

  // While there is something to send that the stream did not take at once.
  struct Waiting {
    Buffer filling;
    Buffer writing;
    bool busy = false;
  };

  // While a part of something has come, of a sealed stream always: there are millions of quiet
  // ones.
  std::unique_ptr<FrameReader> reader_;
  Link link_;
  std::unique_ptr<Waiting> waiting_;
  std::unique_ptr<std::string> partial_;  // the pieces of a long message that came
  Scope* scope_ = nullptr;                // from start() to the end
  MessageTaker* taker_ = nullptr;
  uint64_t max_message_;
  uint64_t max_queued_;
  uint32_t heard_ = 0;
  bool over_ = false;
};

struct Courier::Greeted {
  std::unique_ptr<Courier> courier;
  Peer peer;
};

}  // namespace tutti::wire
