// An ordered stream of bytes to somewhere else: a connection, a pipe, a terminal.
//
// One strand may read while another writes; two may not do the same at once (asserted). A write
// that was cancelled or failed may have sent a part: such a stream is good only for closing.
// Destroying a Stream closes both directions; nobody may still wait on it.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"
#include "world/executor.h"
#include "world/handle.h"

namespace tutti {

// Who is at the other end of a Unix stream, as the kernel says.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

class Clock;
class Scope;

// Gets what is read from a stream, as it comes. Called from the top of an event loop; must not
// destroy the stream.
class ByteTaker {
 public:
  virtual void on_bytes(Bytes bytes, std::vector<Handle> handles) = 0;
  // Asked after that, and then again until it is nothing: how long to wait before more is read.
  virtual Duration pause() { return Duration::zero(); }
  // The last call: the stream has ended, or broke.
  virtual void on_end(Result<void> why) = 0;

 protected:
  ~ByteTaker() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;

  class Read;
  class Write;

  // co_await gives Result<size_t>: at least one byte, or 0 at the end of the stream. Handles that
  // came with the bytes are appended to `handles`, or closed when it is null.
  Read read(MutableBytes into, std::vector<Handle>* handles = nullptr);

  // The other way: the taker gets all that comes, until the scope is cancelled or the stream dies.
  // What waits for it is the scope's, or nothing at all: there may be millions of quiet streams.
  // The clock is for takers that pause.
  virtual void serve(ByteTaker& taker, Scope& scope, Clock* clock);

  // co_await gives Result<void>, when the transport has taken all of it. The bytes, the array of
  // parts and the handles must live until then; handles travel with the first byte and stay open
  // here.
  Write write(Bytes bytes, std::span<const Handle> handles = {});
  Write write(std::span<const Bytes> parts, std::span<const Handle> handles = {});

  // Without waiting, what the transport takes at once: how many bytes that was. Nobody may be
  // writing.
  Result<size_t> write_now(std::span<const Bytes> parts);

  // A hint for streams that carry much: what is written shall wait in the caches of the processor
  // and not in memory, if the other end is so near that this costs no speed.
  virtual void keep_close() {}

  // Half-close: the other end reads what was written, then the end of the stream.
  virtual Result<void> shutdown_write() = 0;
  // The other end's credentials; Code::unsupported for what is not a Unix stream.
  virtual Result<Credentials> peer_credentials() const = 0;

 protected:
  // Tries at once: true when the operation has its result. Otherwise park_* is called next, and
  // the stream completes the operation later, or gives it up in withdraw_*.
  virtual bool try_read(Read& read) = 0;
  virtual void park_read(Read& read) = 0;
  virtual void withdraw_read(Read& read) = 0;
  virtual bool try_write(Write& write) = 0;
  virtual void park_write(Write& write) = 0;
  virtual void withdraw_write(Write& write) = 0;
};

class Stream::Read final : public Waiter {
 public:
  Read(Stream& stream, MutableBytes into, std::vector<Handle>* handles)
      : into(into), handles(handles), stream_(stream) {
    TUTTI_ASSERT(!into.empty(), "a read needs room");
  }
  bool await_ready() {
    if (cancelled_already()) {
      result_ = fail(cancelled_error());
      return true;
    }
    return stream_.try_read(*this);
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    stream_.park_read(*this);
  }
  Result<size_t> await_resume() { return std::move(result_); }

  // For streams: set the result; complete() also wakes the reader.
  void set(Result<size_t> result) { result_ = std::move(result); }
  void complete(Result<size_t> result) {
    set(std::move(result));
    wake();
  }

  MutableBytes into;
  std::vector<Handle>* handles;

 private:
  void on_cancel() override {
    stream_.withdraw_read(*this);
    complete(fail(cancelled_error()));
  }
  Stream& stream_;
  Result<size_t> result_ = 0;
};

class Stream::Write final : public Waiter {
 public:
  Write(Stream& stream, std::span<const Bytes> parts, std::span<const Handle> handles)
      : handles(handles), stream_(stream), parts_(parts) {}
  Write(Stream& stream, Bytes bytes, std::span<const Handle> handles)
      : handles(handles), stream_(stream), single_(bytes) {}
  Write(const Write&) = delete;

  bool await_ready() {
    if (cancelled_already()) {
      result_ = fail(cancelled_error());
      return true;
    }
    return try_now();
  }
  bool try_now() {
    if (parts_.empty()) parts_ = {&single_, 1};
    skip_empty();
    return stream_.try_write(*this);
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    stream_.park_write(*this);
  }
  Result<void> await_resume() { return std::move(result_); }

  // For streams: what is left to send. The first part begins `offset()` bytes in.
  std::span<const Bytes> parts() const { return parts_; }
  size_t offset() const { return offset_; }
  bool finished() const { return parts_.empty(); }
  size_t left() const {
    size_t size = 0;
    for (const Bytes& part : parts_) size += part.size();
    return size - offset_;
  }
  void advance(size_t sent) {
    offset_ += sent;
    skip_empty();
    handles = {};
  }
  void set(Result<void> result) { result_ = std::move(result); }
  void complete(Result<void> result) {
    set(std::move(result));
    wake();
  }

  std::span<const Handle> handles;

 private:
  void skip_empty() {
    while (!parts_.empty() && offset_ >= parts_.front().size()) {
      offset_ -= parts_.front().size();
      parts_ = parts_.subspan(1);
    }
  }
  void on_cancel() override {
    stream_.withdraw_write(*this);
    complete(fail(cancelled_error()));
  }
  Stream& stream_;
  Bytes single_;
  std::span<const Bytes> parts_;
  size_t offset_ = 0;
  Result<void> result_;
};

inline Stream::Read Stream::read(MutableBytes into, std::vector<Handle>* handles) {
  return {*this, into, handles};
}
inline Stream::Write Stream::write(Bytes bytes, std::span<const Handle> handles) {
  return {*this, bytes, handles};
}
inline Stream::Write Stream::write(std::span<const Bytes> parts, std::span<const Handle> handles) {
  return {*this, parts, handles};
}

inline Result<size_t> Stream::write_now(std::span<const Bytes> parts) {
  Write write(*this, parts, {});
  const size_t size = write.left();
  if (write.try_now()) TRY_DO(write.await_resume());
  return size - write.left();
}

}  // namespace tutti
