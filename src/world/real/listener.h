// Listening sockets: TCP addresses and Unix paths.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "world/network.h"
#include "world/real/readiness.h"
#include "world/real/socket_address.h"

namespace tutti {

class RealListener final : public Listener {
 public:
  // `wanted` is what the caller wrote; its port is filled in when it was 0.
  static Result<std::unique_ptr<Listener>> tcp(Loop& loop, const SocketAddress& address,
                                               Address wanted);
  // A path left behind by a dead process is replaced; one somebody listens at is Code::exists.
  static Task<Result<std::unique_ptr<Listener>>> unix_socket(Loop& loop, Address address);
  ~RealListener() override;

  const Address& address() const override { return address_; }
  // Code::exhausted when there are no descriptors left: the connection stays in the queue, and the
  // next call waits a moment before it tries again, so a loop of accepts does not spin.
  Task<Result<std::unique_ptr<Stream>>> accept() override;

 private:
  RealListener(Loop& loop, Handle fd, Address address)
      : loop_(loop), fd_(std::move(fd)), address_(std::move(address)) {}
  static Result<std::unique_ptr<RealListener>> start(Loop& loop, Handle fd, Address address);
  Result<std::unique_ptr<Stream>> wrap(Handle fd, const SocketAddress& peer);
  void remove_path();

  Loop& loop_;
  Handle fd_;
  Address address_;
  Readiness readiness_;
  bool exhausted_ = false;
  struct stat path_{};  // the file we made, of a Unix socket
};

}  // namespace tutti
