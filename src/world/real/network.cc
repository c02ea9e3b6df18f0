#include "world/real/network.h"

#include <sys/socket.h>

#include <cerrno>
#include <csignal>

#include "world/real/adopt.h"
#include "world/real/connect.h"
#include "world/real/fd.h"
#include "world/real/fd_stream.h"
#include "world/real/listener.h"
#include "world/real/resolve.h"

namespace tutti {

namespace {

void ignore_broken_pipes() {
  struct sigaction action;
  if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

RealNetwork::RealNetwork(Loop& loop) : loop_(loop) { ignore_broken_pipes(); }

Task<Result<std::unique_ptr<Listener>>> RealNetwork::listen(Address address) {
  if (address.kind == Address::Kind::unix_socket) {
    auto listener = co_await RealListener::unix_socket(loop_, address);
    co_return listener;
  }
  CO_TRY(const auto found, co_await resolve(loop_, address));
  Result<std::unique_ptr<Listener>> listener = RealListener::tcp(loop_, found.front(), address);
  for (size_t i = 1; i < found.size() && !listener; ++i)
    listener = RealListener::tcp(loop_, found[i], address);
  co_return listener;
}

Task<Result<std::unique_ptr<Stream>>> RealNetwork::connect(Address address) {
  if (address.kind == Address::Kind::unix_socket) {
    auto stream = co_await connect_unix(loop_, address);
    co_return stream;
  }
  CO_TRY(const auto found, co_await resolve(loop_, address));
  Result<std::unique_ptr<Stream>> stream = co_await connect_tcp(loop_, found.front(), address);
  for (size_t i = 1; i < found.size() && !stream; ++i) {
    if (stream.error().code() == Code::cancelled) break;
    stream = co_await connect_tcp(loop_, found[i], address);
  }
  co_return stream;
}

Result<Network::Pair> RealNetwork::pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return fail_errno(errno, "make a pair of sockets");
  Handle ours = own_fd(fds[0]);
  Handle theirs = own_fd(fds[1]);
  TRY(auto stream,
      FdStream::open(loop_, std::move(ours), FdStream::Kind::unix_socket, "socket pair"));
  return Pair{std::move(stream), std::move(theirs)};
}

Result<std::unique_ptr<Stream>> RealNetwork::adopt(Handle handle) {
  return adopt_fd(loop_, std::move(handle));
}

}  // namespace tutti
