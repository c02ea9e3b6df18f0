// Two connected streams in memory, for tests: bounded like a socket's buffers, with bytes that can
// be damaged or lost on the way. Both ends and their strands belong to one executor.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "world/stream.h"

namespace tutti::wire {

// One direction, and what happens to bytes in it.
struct FaultyPipe {
  size_t capacity = 64 << 10;
  size_t cut_after = SIZE_MAX;  // the writer's end dies once so many bytes have passed
  size_t flip_at = SIZE_MAX;    // this byte arrives with `flip_bits` turned over
  unsigned char flip_bits = 1;

  std::string bytes;
  size_t passed = 0;  // bytes ever written
  bool ended = false;
  bool reader_gone = false;
  Stream::Read* reader = nullptr;
  Stream::Write* writer = nullptr;
};

class FaultyStream final : public Stream {
 public:
  using Pair = std::pair<std::unique_ptr<FaultyStream>, std::unique_ptr<FaultyStream>>;
  static Pair make_pair() {
    auto there = std::make_shared<FaultyPipe>();
    auto back = std::make_shared<FaultyPipe>();
    return {std::make_unique<FaultyStream>(there, back),
            std::make_unique<FaultyStream>(back, there)};
  }
  FaultyStream(std::shared_ptr<FaultyPipe> out, std::shared_ptr<FaultyPipe> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~FaultyStream() override {
    in_->reader_gone = true;
    end(*out_);
    if (Write* writer = std::exchange(in_->writer, nullptr)) writer->complete(fail(gone()));
  }

  FaultyPipe& outgoing() { return *out_; }
  FaultyPipe& incoming() { return *in_; }
  Credentials credentials;  // what peer_credentials() tells
  bool is_unix = false;

  Result<void> shutdown_write() override {
    end(*out_);
    return {};
  }
  Result<Credentials> peer_credentials() const override {
    if (is_unix) return credentials;
    return fail(Code::unsupported, "not a Unix stream");
  }

 private:
  static Error gone() { return {Code::unavailable, "the other end is closed"}; }
  static void end(FaultyPipe& pipe) {
    pipe.ended = true;
    if (Read* reader = std::exchange(pipe.reader, nullptr)) serve(pipe, *reader, true);
  }

  // Gives the reader what there is; false when it has to wait.
  static bool serve(FaultyPipe& pipe, Read& read, bool parked) {
    if (pipe.bytes.empty() && !pipe.ended) return false;
    const size_t size = std::min(read.into.size(), pipe.bytes.size());
    std::copy_n(as_bytes(pipe.bytes).begin(), size, read.into.begin());
    pipe.bytes.erase(0, size);
    if (parked)
      read.complete(size);
    else
      read.set(size);
    return true;
  }

  static void push(FaultyPipe& pipe, Bytes bytes) {
    for (const std::byte byte : bytes) {
      if (pipe.passed == pipe.cut_after) end(pipe);
      if (pipe.ended) return;
      auto value = static_cast<unsigned char>(byte);
      if (pipe.passed == pipe.flip_at) value ^= pipe.flip_bits;
      pipe.bytes.push_back(static_cast<char>(value));
      ++pipe.passed;
    }
    if (pipe.passed == pipe.cut_after) end(pipe);
  }

  // Takes what fits; true when the write has its result.
  static bool accept(FaultyPipe& pipe, Write& write) {
    while (!write.finished() && !pipe.reader_gone) {
      const size_t room = pipe.capacity - std::min(pipe.capacity, pipe.bytes.size());
      if (room == 0) return false;
      const Bytes part = write.parts().front().subspan(write.offset());
      const size_t size = std::min(part.size(), room);
      push(pipe, part.first(size));
      write.advance(size);
    }
    if (pipe.reader_gone) write.set(fail(gone()));
    return true;
  }

  bool try_read(Read& read) override {
    if (!serve(*in_, read, false)) return false;
    resume_writer();
    return true;
  }
  void park_read(Read& read) override { in_->reader = &read; }
  void withdraw_read(Read&) override { in_->reader = nullptr; }
  bool try_write(Write& write) override {
    const bool done = accept(*out_, write);
    wake_reader();
    return done;
  }
  void park_write(Write& write) override { out_->writer = &write; }
  void withdraw_write(Write&) override { out_->writer = nullptr; }

  void wake_reader() {
    if (out_->reader == nullptr || (out_->bytes.empty() && !out_->ended)) return;
    serve(*out_, *std::exchange(out_->reader, nullptr), true);
  }
  void resume_writer() {
    if (in_->writer == nullptr || !accept(*in_, *in_->writer)) return;
    std::exchange(in_->writer, nullptr)->wake();
  }

  std::shared_ptr<FaultyPipe> out_;
  std::shared_ptr<FaultyPipe> in_;
};

}  // namespace tutti::wire
