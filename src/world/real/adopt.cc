#include "world/real/adopt.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "world/real/fd.h"
#include "world/real/fd_stream.h"

namespace tutti {

namespace {

// Opening /dev/ptmx makes a new terminal instead of opening the same one.
bool terminal_master(const struct stat& info) { return info.st_rdev == makedev(5, 2); }

int socket_option(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  getsockopt(fd, SOL_SOCKET, option, &value, &size);
  return value;
}

Result<FdStream::Kind> socket_kind(int fd) {
  if (socket_option(fd, SO_TYPE) != SOCK_STREAM)
    return fail(Code::unsupported, "descriptor {} is a socket, but not of a stream", fd);
  if (socket_option(fd, SO_ACCEPTCONN) == 1)
    return fail(Code::unsupported, "descriptor {} is a listening socket, not a stream", fd);
  return socket_option(fd, SO_DOMAIN) == AF_UNIX ? FdStream::Kind::unix_socket
                                                 : FdStream::Kind::tcp;
}

Result<FdStream::Kind> kind_of(int fd, const struct stat& info) {
  if (S_ISSOCK(info.st_mode)) return socket_kind(fd);
  if (S_ISFIFO(info.st_mode)) return FdStream::Kind::pipe;
  if (S_ISCHR(info.st_mode)) return isatty(fd) ? FdStream::Kind::terminal : FdStream::Kind::pipe;
  return fail(Code::unsupported, "descriptor {} is a file, not a stream; open it as one", fd);
}

// O_NONBLOCK belongs to what was opened, not to the descriptor: set on an inherited terminal it
// would surprise the shell. Opened anew, it is ours alone; where that may not be (a terminal of
// another user, after su), it is set for as long as we need it.
struct Unblocked {
  Handle fd;
  std::optional<int> flags_before;  // when they are changed for all who share it
};

Result<Unblocked> without_blocking(Handle fd, const struct stat& info) {
  const int flags = fcntl(fd.number(), F_GETFL);
  if (flags < 0) return fail_errno(errno, "descriptor {}", fd.number());
  if ((flags & O_NONBLOCK) != 0) return Unblocked{std::move(fd), {}};
  if (!terminal_master(info)) {
    const std::string path = fmt::format("/proc/self/fd/{}", fd.number());
    Handle again =
        own_fd(open(path.c_str(), (flags & O_ACCMODE) | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (again.open()) return Unblocked{std::move(again), {}};
  }
  if (fcntl(fd.number(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_errno(errno, "make descriptor {} non-blocking", fd.number());
  return Unblocked{std::move(fd), flags};
}

}  // namespace

Result<std::unique_ptr<Stream>> adopt_fd(Loop& loop, Handle fd) {
  const int number = fd.number();
  struct stat info;
  if (fstat(number, &info) != 0) return fail_errno(errno, "adopt descriptor {}", number);
  TRY(const FdStream::Kind kind, kind_of(number, info));
  std::optional<int> flags_before;
  if (!S_ISSOCK(info.st_mode)) {
    TRY(Unblocked unblocked, without_blocking(std::move(fd), info));
    fd = std::move(unblocked.fd);
    flags_before = unblocked.flags_before;
  }
  const char* name = kind == FdStream::Kind::terminal ? "terminal"
                     : kind == FdStream::Kind::pipe   ? "pipe"
                                                      : "socket";
  return FdStream::open(loop, std::move(fd), kind, fmt::format("{} {}", name, number),
                        flags_before);
}

}  // namespace tutti
