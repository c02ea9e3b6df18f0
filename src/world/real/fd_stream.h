// A Stream over a descriptor of this process: a TCP or Unix connection, a pipe, a terminal.
//
// Each operation goes to the kernel at once and is parked only when that would block. What an
// edge-triggered report said is remembered, so that a reader who has drained a socket is parked
// without asking again.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "world/real/loop.h"
#include "world/stream.h"

namespace tutti {

class FdStream final : public Stream, private Watch {
 public:
  enum class Kind : unsigned char { tcp, unix_socket, pipe, terminal };

  // What one write may carry, and so what one read may bring (the kernel's SCM_MAX_FD).
  static constexpr size_t kMaxHandles = 253;

  // `fd` is a stream socket, or non-blocking. `peer` names the other end in errors. The flags, if
  // any, are given back to the descriptor when the stream dies.
  static Result<std::unique_ptr<Stream>> open(Loop& loop, Handle fd, Kind kind, std::string peer,
                                              std::optional<int> flags_before = {});
  ~FdStream() override;

  void keep_close() override;
  Result<void> shutdown_write() override;
  Result<Credentials> peer_credentials() const override;

 private:
  FdStream(Loop& loop, Handle fd, Kind kind, std::string peer, std::optional<int> flags_before)
      : loop_(loop),
        fd_(std::move(fd)),
        kind_(kind),
        flags_before_(flags_before),
        peer_(std::move(peer)) {}

  bool try_read(Read& read) override;
  void park_read(Read& read) override;
  void withdraw_read(Read& read) override;
  bool try_write(Write& write) override;
  void park_write(Write& write) override;
  void withdraw_write(Write& write) override;
  void on_ready(uint32_t events) override;

  enum class Outcome : unsigned char { done, blocked, turn_over };
  Outcome attempt_read(Read& read);
  Outcome attempt_write(Write& write);
  ssize_t receive(Read& read);
  ssize_t receive_with_handles(Read& read);
  ssize_t send(const Write& write);
  Result<void> check_handles(const Write& write) const;
  void listen_for_room(bool wanted);
  Error error(int number, const char* doing) const;

  bool socket() const { return kind_ == Kind::tcp || kind_ == Kind::unix_socket; }

  Loop& loop_;
  Handle fd_;
  Kind kind_;
  std::optional<int> flags_before_;
  bool readable_ = true;        // false: drained, and the loop will tell when that changes
  bool ended_ = false;          // the other end is done: what is left to read ends without a report
  bool came_in_parts_ = false;  // the last read stopped at handles, not because there was no more
  bool handles_lost_ = false;   // the last read had no room for all handles
  bool told_of_room_ = false;   // EPOLLOUT is asked for
  bool full_ = false;           // the last write was refused, and room will be reported
  uint8_t reads_this_turn_ = 0;
  uint8_t writes_this_turn_ = 0;
  Read* parked_read_ = nullptr;
  Write* parked_write_ = nullptr;
  std::string peer_;
};

}  // namespace tutti
