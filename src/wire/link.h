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
      : stream_(std::move(stream)), seal_(std::move(seal)) {}

  // Once, first. Bytes that came behind the handshake go to the reader.
  Task<Result<Identity>> handshake(FrameReader& reader);

  // Waits for more bytes; false at the end of the stream. One strand receives, one sends.
  Task<Result<bool>> receive(FrameReader& reader);
  Task<Result<void>> send(std::span<const Bytes> parts);

  // Says goodbye in the seal's own way and half-closes.
  Task<Result<void>> finish();
  // Closes both directions at once; nobody may be receiving or sending.
  void drop() { stream_.reset(); }
  // Gives back what a busy moment took and nothing is in.
  void release_idle();

 private:
  Result<bool> open(Bytes travelled, FrameReader& reader);

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Seal> seal_;
  ReadSize read_size_;
  Buffer travelled_in_;
  std::string opened_;
  std::string travelled_out_;
};

}  // namespace tutti::wire
