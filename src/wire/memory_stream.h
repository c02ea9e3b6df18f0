// Two streams joined in memory, for tests: each direction holds a bounded number of bytes, can be
// held back (a partition: what is written arrives only after release()) and reset.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "world/stream.h"

namespace tutti::wire {

class MemoryPipe {
 public:
  explicit MemoryPipe(size_t capacity) : capacity_(capacity) {}

  void hold() { held_ = true; }
  void release() {
    held_ = false;
    move();
  }
  // Both ends get an error; bytes on their way are lost.
  void reset() {
    broken_ = true;
    bytes_.clear();
    move();
  }
  void close() {
    closed_ = true;
    move();
  }
  size_t size() const { return bytes_.size(); }
  void trim() { bytes_.shrink_to_fit(); }
  // What was written and not read.
  std::string take() {
    std::string taken = std::exchange(bytes_, std::string());
    move();
    return taken;
  }
  // What is on its way, to be damaged.
  std::string& bytes() { return bytes_; }
  uint64_t written() const { return written_; }
  // Adds bytes that nobody wrote.
  void inject(std::string_view bytes) {
    bytes_ += bytes;
    move();
  }

  bool try_read(Stream::Read& read) {
    if (broken_) {
      read.set(fail(Code::unavailable, "connection reset"));
      return true;
    }
    if (held_ || (bytes_.empty() && !closed_)) return false;
    const size_t size = std::min(read.into.size(), bytes_.size());
    std::copy_n(as_bytes(bytes_).begin(), size, read.into.begin());
    bytes_.erase(0, size);
    read.set(size);
    return true;
  }
  bool try_write(Stream::Write& write) {
    if (broken_ || closed_) {
      write.set(fail(Code::unavailable, "broken pipe"));
      return true;
    }
    while (!write.finished() && bytes_.size() < capacity_) {
      const Bytes part = write.parts().front().subspan(write.offset());
      const size_t size = std::min(part.size(), capacity_ - bytes_.size());
      bytes_ += as_text(part.first(size));
      written_ += size;
      write.advance(size);
    }
    return write.finished();
  }
  void move() {
    if (writer != nullptr && try_write(*writer)) std::exchange(writer, nullptr)->wake();
    if (reader != nullptr && try_read(*reader)) std::exchange(reader, nullptr)->wake();
    if (writer != nullptr && try_write(*writer)) std::exchange(writer, nullptr)->wake();
  }

  Stream::Read* reader = nullptr;
  Stream::Write* writer = nullptr;

 private:
  size_t capacity_;
  std::string bytes_;
  uint64_t written_ = 0;
  bool held_ = false;
  bool closed_ = false;
  bool broken_ = false;
};

class MemoryStream final : public Stream {
 public:
  MemoryStream(std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out)
      : in_(std::move(in)), out_(std::move(out)) {}
  ~MemoryStream() override {
    out_->close();
    in_->reset();
  }
  Result<void> shutdown_write() override {
    out_->close();
    return {};
  }
  Result<Credentials> peer_credentials() const override {
    return fail(Code::unsupported, "a stream in memory has no credentials");
  }

 private:
  bool try_read(Read& read) override {
    const bool done = in_->try_read(read);
    if (done) in_->move();
    return done;
  }
  void park_read(Read& read) override { in_->reader = &read; }
  void withdraw_read(Read&) override { in_->reader = nullptr; }
  bool try_write(Write& write) override {
    for (;;) {
      const bool done = out_->try_write(write);
      const bool more_room = out_->reader != nullptr;
      out_->move();
      if (done || !more_room || out_->size() != 0) return done;
    }
  }
  void park_write(Write& write) override { out_->writer = &write; }
  void withdraw_write(Write&) override { out_->writer = nullptr; }

  std::shared_ptr<MemoryPipe> in_;
  std::shared_ptr<MemoryPipe> out_;
};

}  // namespace tutti::wire
