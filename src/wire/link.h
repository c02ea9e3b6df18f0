// A stream and the seal on it, as one thing that frames are received from and sent over.
#pragma once

#include <memory>
#include <string>

#include "wire/frame.h"
#include "wire/seal.h"

namespace tutti::wire {

class Link {
 public:
  Link(std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal)
      : stream_(std::move(stream)), sealed_(std::make_unique<Sealed>(std::move(seal))) {}

  // Once, first. Bytes that came behind the handshake go to the reader.
  Task<Result<Identity>> handshake(FrameReader& reader);

  // Waits for more bytes; false at the end of the stream. One strand receives, one sends. Where the
  // seal has a goodbye, an end without it is an error: somebody may have cut the rest off.
  Task<Result<bool>> receive(FrameReader& reader);
  Task<Result<void>> send(std::span<const Bytes> parts);
  // False once a send was broken off, or after finish().
  bool can_speak() const { return !sending_ && !finished_; }

  // Says goodbye in the seal's own way, or what was wrong with what came, and half-closes.
  Task<Result<void>> finish();
  // The same, then waits for the other side to close, ignoring what it says: closing with bytes
  // unread would reset the connection and could destroy our last words on their way. It waits as
  // long as the other side likes: give it a deadline.
  Task<Result<void>> part();
  // Closes both directions at once; nobody may be receiving or sending.
  void drop() { stream_.reset(); }
  // After a quiet time: gives back the memory of busier ones, the reader's too.
  void release_idle(FrameReader& reader);
  // Bytes of memory held for what travels.
  size_t capacity() const;
  // The stream, where nothing but plain bytes travel over it: who waits there needs no coroutine.
  Stream* plain_stream() const { return sealed_ == nullptr ? stream_.get() : nullptr; }

 private:
  struct Sealed {
    explicit Sealed(std::unique_ptr<Seal> seal) : seal(std::move(seal)) {}
    std::unique_ptr<Seal> seal;
    ReadSize read_size;
    Buffer travelled_in;
    std::string opened;
    std::string travelled_out;
  };
  Result<bool> open(Bytes travelled, FrameReader& reader);

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sealed> sealed_;  // gone after a handshake whose seal leaves bytes as they are
  bool sending_ = false;
  bool finished_ = false;
  bool heard_goodbye_ = false;
};

}  // namespace tutti::wire
