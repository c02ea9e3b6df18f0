#include "world/real/connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

#include "world/real/fd.h"
#include "world/real/fd_stream.h"
#include "world/real/readiness.h"

namespace tutti {

namespace {

// The kernel tells nobody when a full queue of a Unix listener has room again, so we ask: about 5 s
// in all, long enough for a busy listener, short enough to notice one that hangs.
constexpr Duration kFirstPause = 1ms;
constexpr Duration kLongestPause = 50ms;
constexpr int kQueueTries = 100;

std::unexpected<Error> failed(int number, const Address& wanted, const std::string& at) {
  const std::string name = wanted.text();
  const std::string doing =
      name == at ? fmt::format("connect to {}", name) : fmt::format("connect to {} ({})", name, at);
  const std::string message = Error::from_errno(number, doing).message();
  if (number == ECONNREFUSED) return fail(Code::unavailable, "{}; nobody listens there", message);
  // The kernel gave up on the other end; no deadline of ours passed.
  if (number == ETIMEDOUT) return fail(Code::unavailable, "{}", message);
  return fail_errno_text(number, doing);
}

// Waits until the handshake is over and gives its errno, 0 when it succeeded.
Task<Result<int>> handshake(Loop& loop, int fd) {
  Readiness readiness;
  CO_TRY_DO(loop.add(fd, EPOLLOUT, readiness));
  auto waited = co_await readiness.wait();
  loop.remove(fd, readiness);
  if (!waited) co_return fail(std::move(waited).error());
  int number = 0;
  socklen_t size = sizeof number;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size);
  co_return number;
}

}  // namespace

Task<Result<std::unique_ptr<Stream>>> connect_tcp(Loop& loop, SocketAddress address,
                                                  Address wanted) {
  if (Strand::current()->cancelled()) co_return fail(cancelled_error());
  Handle fd = own_fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) co_return failed(errno, wanted, address.text());
  const int on = 1;
  setsockopt(fd.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int number = 0;
  if (::connect(fd.number(), address.raw(), address.size) != 0) number = errno;
  if (number == EINPROGRESS || number == EINTR) {
    CO_TRY(number, co_await handshake(loop, fd.number()));
  }
  // A port nobody listens at can be the one this end was given: TCP then connects it to itself.
  if (number == 0 && SocketAddress::local(fd.number()) == address) number = ECONNREFUSED;
  if (number != 0) co_return failed(number, wanted, address.text());
  co_return FdStream::open(loop, std::move(fd), FdStream::Kind::tcp, wanted.text());
}

Task<Result<std::unique_ptr<Stream>>> connect_unix(Loop& loop, Address address) {
  CO_TRY(const SocketAddress raw, SocketAddress::unix_socket(address.host));
  Handle fd = own_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) co_return failed(errno, address, address.text());
  Duration pause = kFirstPause;
  for (int i = 0; i < kQueueTries; ++i) {
    if (Strand::current()->cancelled()) co_return fail(cancelled_error());
    if (::connect(fd.number(), raw.raw(), raw.size) == 0)
      co_return FdStream::open(loop, std::move(fd), FdStream::Kind::unix_socket, address.text());
    if (errno != EAGAIN && errno != EINTR) co_return failed(errno, address, address.text());
    CO_TRY_DO(co_await loop.clock().sleep(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
  co_return fail(Code::unavailable, "connect to {}: its listener does not accept; does it hang?",
                 address.text());
}

}  // namespace tutti
