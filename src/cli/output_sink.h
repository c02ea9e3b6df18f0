// Text on its way to a terminal, pipe or file that may be slow, full or gone.
//
// Strands append what they like; one strand writes. Memory is bounded: whoever appends waits for
// room first. Nobody reading any more is an error for all who append; a full disk is not, since a
// log that cannot be written must not end a training run: what is lost is counted.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "world/channel.h"
#include "world/semaphore.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti::cli {

class OutputSink {
 public:
  // Without a stream everything is dropped.
  OutputSink(std::unique_ptr<Stream> stream, bool colour)
      : stream_(std::move(stream)), colour_(colour) {}

  bool colour() const { return colour_; }

  // Waits for room. Code::unavailable when nobody reads.
  Task<Result<void>> room();
  // Append to this, then call added().
  std::string& text() { return filling_; }
  void added();

  // The writing strand: until close(), and all is written.
  Task<void> write_all();
  void close();

  bool broken() const { return broken_.has_value(); }
  // The last reason why something could not be written, and how much was lost.
  const std::optional<Error>& trouble() const { return trouble_; }
  uint64_t lost_bytes() const { return lost_bytes_; }

 private:
  void note_failure(Error error);

  std::unique_ptr<Stream> stream_;
  bool colour_;
  std::string filling_;
  std::string writing_;
  Channel<char> bell_{1};
  std::unique_ptr<Event> drained_ = std::make_unique<Event>();
  std::optional<Error> trouble_;
  std::optional<Error> broken_;
  uint64_t lost_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace tutti::cli
