#include "world/real/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/fd.h"
#include "world/real/fd_stream.h"

namespace tutti {

namespace {

// Connections the kernel completes for us; it cuts this down to net.core.somaxconn.
constexpr int kBacklog = 4096;
// After running out of descriptors: long enough to cost nothing, short enough to go unnoticed.
constexpr Duration kExhaustedPause = 20ms;
// Others hold the folder's lock for the time of a bind.
constexpr int kLockTries = 500;
constexpr Duration kLockPause = 1ms;

bool out_of_descriptors(int number) {
  return number == EMFILE || number == ENFILE || number == ENOBUFS || number == ENOMEM;
}

// Trouble of the one connection that was about to be accepted, not of the listener; see accept(2).
bool connection_is_gone(int number) {
  switch (number) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH: return true;
    default: return false;
  }
}

Handle new_socket(int family) {
  return own_fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Two processes that take over one dead path at the same time must not remove each other's socket,
// nor one that is bound and does not listen yet: whoever binds in a folder holds its lock.
Task<Result<Handle>> lock_folder(Loop& loop, std::string folder) {
  Handle handle = own_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.open()) co_return fail_errno(errno, "open folder {}", folder);
  for (int i = 0; i < kLockTries; ++i) {
    if (flock(handle.number(), LOCK_EX | LOCK_NB) == 0) co_return handle;
    if (errno != EWOULDBLOCK && errno != EINTR) co_return fail_errno(errno, "lock {}", folder);
    CO_TRY_DO(co_await loop.clock().sleep(kLockPause));
  }
  co_return fail(Code::unavailable, "folder {} stays locked by another process (flock)", folder);
}

// With the folder locked: removes a socket at which nobody listens.
Result<void> remove_stale(const std::string& path, const SocketAddress& address) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? Result<void>{} : fail_errno(errno, "look at {}", path);
  if (!S_ISSOCK(info.st_mode))
    return fail(Code::exists, "{} is there and is not a socket; choose another path", path);
  const Handle probe = new_socket(AF_UNIX);
  if (!probe.open()) return fail_errno(errno, "look at {}", path);
  if (connect(probe.number(), address.raw(), address.size) == 0 || errno == EAGAIN)
    return fail(Code::exists, "somebody listens at {} already", path);
  if (errno != ECONNREFUSED) return fail_errno(errno, "see who listens at {}", path);
  if (unlink(path.c_str()) != 0) return fail_errno(errno, "remove {}", path);
  return {};
}

}  // namespace

Result<std::unique_ptr<RealListener>> RealListener::start(Loop& loop, Handle fd, Address address) {
  if (::listen(fd.number(), kBacklog) != 0)
    return fail_errno(errno, "listen at {}", address.text());
  std::unique_ptr<RealListener> listener(new RealListener(loop, std::move(fd), std::move(address)));
  auto added = loop.add(listener->fd_.number(), EPOLLIN, listener->readiness_);
  if (!added) {
    listener->fd_.close();
    return fail(added.error().context(listener->address_.text()));
  }
  return listener;
}

Result<std::unique_ptr<Listener>> RealListener::tcp(Loop& loop, const SocketAddress& address,
                                                    Address wanted) {
  Handle fd = new_socket(address.family());
  if (!fd.open()) return fail_errno(errno, "listen at {}", wanted.text());
  const int on = 1;
  setsockopt(fd.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted ones inherit it
  if (bind(fd.number(), address.raw(), address.size) != 0)
    return fail_errno(errno, "listen at {}", wanted.text());
  wanted.port = SocketAddress::local(fd.number()).port();
  return start(loop, std::move(fd), std::move(wanted));
}

Task<Result<std::unique_ptr<Listener>>> RealListener::unix_socket(Loop& loop, Address address) {
  CO_TRY(const SocketAddress raw, SocketAddress::unix_socket(address.host));
  if (address.host.starts_with('@')) {
    Handle named = new_socket(AF_UNIX);
    if (!named.open() || bind(named.number(), raw.raw(), raw.size) != 0)
      co_return fail_errno(errno, "listen at {}", address.text());
    CO_TRY(auto listener, start(loop, std::move(named), address));
    co_return listener;
  }
  const std::string folder = folder_of(address.host);
  CO_TRY(const Handle lock, co_await lock_folder(loop, folder));
  CO_TRY_DO(remove_stale(address.host, raw));
  Handle fd = new_socket(AF_UNIX);
  if (!fd.open()) co_return fail_errno(errno, "listen at {}", address.text());
  // Before bind: the path is made with the mode of the socket, so it is never open to others.
  fchmod(fd.number(), S_IRUSR | S_IWUSR);
  if (bind(fd.number(), raw.raw(), raw.size) != 0)
    co_return fail_errno(errno, "listen at {}", address.text());
  struct stat made{};
  lstat(address.host.c_str(), &made);
  auto listener = start(loop, std::move(fd), address);
  if (!listener) {
    unlink(address.host.c_str());
    co_return fail(std::move(listener).error());
  }
  (*listener)->path_ = made;
  co_return std::move(*listener);
}

RealListener::~RealListener() {
  if (!fd_.open()) return;
  loop_.remove(fd_.number(), readiness_);
  if (address_.kind == Address::Kind::unix_socket) remove_path();
}

// While we still listen nobody else takes the path; unless somebody removed it by hand.
void RealListener::remove_path() {
  struct stat info;
  if (lstat(address_.host.c_str(), &info) != 0) return;
  if (info.st_dev == path_.st_dev && info.st_ino == path_.st_ino) unlink(address_.host.c_str());
}

Task<Result<std::unique_ptr<Stream>>> RealListener::accept() {
  if (exhausted_) {
    CO_TRY_DO(co_await loop_.clock().sleep(kExhaustedPause));
    exhausted_ = false;
  }
  for (;;) {
    if (Strand::current()->cancelled()) co_return fail(cancelled_error());
    SocketAddress peer;
    Handle fd = own_fd(accept4(fd_.number(), peer.raw(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int number = errno;
    if (fd.open()) co_return wrap(std::move(fd), peer);
    if (number == EAGAIN) {
      CO_TRY_DO(co_await readiness_.wait());
    } else if (out_of_descriptors(number)) {
      exhausted_ = true;
      co_return fail(Code::exhausted, "accept at {}: {}", address_.text(),
                     Error::from_errno(number, "no descriptor for the connection").message());
    } else if (!connection_is_gone(number)) {
      co_return fail_errno(number, "accept at {}", address_.text());
    }
  }
}

Result<std::unique_ptr<Stream>> RealListener::wrap(Handle fd, const SocketAddress& peer) {
  if (address_.kind == Address::Kind::unix_socket)
    return FdStream::open(loop_, std::move(fd), FdStream::Kind::unix_socket, address_.text());
  return FdStream::open(loop_, std::move(fd), FdStream::Kind::tcp, peer.text());
}

}  // namespace tutti
