// Another way than the kernel's TCP to move the bytes of a connection: a network card that writes
// into memory by itself, say. Two ends that are connected already, and have proved who they are,
// tell each other where their carriers are and go on over those.
//
//   TRY(auto end, carrier.make_end());
//   … give end->words() to the other side, get its own …
//   TRY_DO(end->attach(theirs, std::move(connection)));
//
// Belongs to one loop, as its streams do.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti {

// A Stream whose carrier may look at the buffers of an operation at any time while it is parked.
class CarriedStream : public Stream {
 public:
  // How the other end reaches this one.
  virtual Bytes words() const = 0;
  // Once: begins. The connection stays, silent: its end is the end of this stream, so that a dead
  // process is known as soon as the kernel knows.
  virtual Result<void> attach(Bytes theirs, std::unique_ptr<Stream> connection) = 0;

  // Before the buffer of a parked operation is changed or freed: the carrier is done with it when
  // these return. Where that takes too long, the stream breaks.
  virtual void let_go_read() = 0;
  virtual void let_go_write() = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual std::string_view name() const = 0;
  virtual Result<std::unique_ptr<CarriedStream>> make_end() = 0;
  // When all streams are gone: lets the others read to the end, for a moment. Nothing follows.
  virtual Task<void> stop() = 0;
};

}  // namespace tutti
