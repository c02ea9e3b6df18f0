#include "world/real/fd_stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "world/real/fd.h"

namespace tutti {

namespace {

// Operations that may succeed without waiting before the strand gives way to others.
constexpr uint8_t kOperationsPerTurn = 32;
// Calls one large write may make before the loop turns.
constexpr int kSendsPerTurn = 16;
// Parts handed to the kernel at once; far below its limit of 1,024, enough for frames in a batch.
constexpr size_t kPartsPerSend = 64;

// Of a connection that is kept close: the kernel counts twice as much, and lets that many bytes be
// on their way. A core's second cache holds it; where a round trip is shorter than this, it is
// enough for 5 GB/s.
constexpr int kCloseBufferBytes = 256 << 10;
constexpr uint32_t kCloseRoundTripUs = 100;

constexpr uint32_t kReadEvents = EPOLLIN | EPOLLRDHUP;
constexpr uint32_t kEndEvents = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

using HandleRoom = std::array<char, CMSG_SPACE(FdStream::kMaxHandles * sizeof(int))>;

// Takes ownership of every descriptor that came with the message.
std::vector<Handle> received_handles(msghdr& message) {
  std::vector<Handle> handles;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      handles.push_back(own_fd(fd));
    }
  }
  return handles;
}

void attach_handles(msghdr& message, std::span<const Handle> handles, HandleRoom& room) {
  message.msg_control = room.data();
  message.msg_controllen = CMSG_SPACE(handles.size() * sizeof(int));
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(handles.size() * sizeof(int));
  for (size_t i = 0; i < handles.size(); ++i) {
    const int fd = handles[i].number();
    std::memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof fd);
  }
}

}  // namespace

Result<std::unique_ptr<Stream>> FdStream::open(Loop& loop, Handle fd, Kind kind, std::string peer,
                                               std::optional<int> flags_before) {
  std::unique_ptr<FdStream> stream(
      new FdStream(loop, std::move(fd), kind, std::move(peer), flags_before));
  auto added = loop.add(stream->fd_.number(), kReadEvents, *stream);
  if (!added) {
    stream->fd_.close();  // nothing for the destructor to remove
    return fail(added.error().context(stream->peer_));
  }
  return stream;
}

FdStream::~FdStream() {
  TUTTI_ASSERT(parked_read_ == nullptr && parked_write_ == nullptr,
               "a stream outlives its waiters");
  if (!fd_.open()) return;
  loop_.remove(fd_.number(), *this);
  if (flags_before_) fcntl(fd_.number(), F_SETFL, *flags_before_);
}

Error FdStream::error(int number, const char* doing) const {
  const std::string what = fmt::format("{} {}", doing, peer_);
  // The kernel gave up on the other end; no deadline of ours passed. A terminal whose other end
  // was closed says EIO.
  if (number == ETIMEDOUT || (number == EIO && kind_ == Kind::terminal))
    return {Code::unavailable, Error::from_errno(number, what).message()};
  if (number == ETOOMANYREFS)
    return {Code::exhausted, what + ": too many handles are on their way, unread"};
  return Error::from_errno(number, what);
}

bool FdStream::try_read(Read& read) {
  if (!readable_ || reads_this_turn_ >= kOperationsPerTurn) return false;
  ++reads_this_turn_;
  return attempt_read(read) == Outcome::done;
}

void FdStream::park_read(Read& read) {
  TUTTI_ASSERT(parked_read_ == nullptr, "one strand reads a stream at a time");
  reads_this_turn_ = 0;
  if (readable_ && attempt_read(read) == Outcome::done) return read.wake();
  parked_read_ = &read;
}

void FdStream::withdraw_read(Read&) { parked_read_ = nullptr; }

FdStream::Outcome FdStream::attempt_read(Read& read) {
  ssize_t count;
  do {
    count = receive(read);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) {
    readable_ = false;
    return Outcome::blocked;
  }
  if (count >= 0) {
    if (handles_lost_) {
      read.set(fail(Code::exhausted,
                    "read {}: handles that came were lost, too many are open; see `ulimit -n`",
                    peer_));
      return Outcome::done;
    }
    // A socket that gave less than was asked for has no more, and its next byte or end will be
    // reported; so says epoll(7). Unless the end was reported already.
    if (socket() && static_cast<size_t>(count) < read.into.size() && !ended_ && !came_in_parts_)
      readable_ = false;
    read.set(static_cast<size_t>(count));
  } else if (errno == EIO && kind_ == Kind::terminal) {
    read.set(0);
  } else {
    read.set(fail(error(errno, "read")));
  }
  return Outcome::done;
}

ssize_t FdStream::receive(Read& read) {
  if (kind_ == Kind::tcp)
    return recv(fd_.number(), read.into.data(), read.into.size(), MSG_DONTWAIT);
  if (kind_ == Kind::unix_socket) return receive_with_handles(read);
  return ::read(fd_.number(), read.into.data(), read.into.size());
}

ssize_t FdStream::receive_with_handles(Read& read) {
  alignas(cmsghdr) HandleRoom room;
  iovec part{read.into.data(), read.into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Without room the kernel closes what came.
  if (read.handles != nullptr) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
  }
  const ssize_t count = recvmsg(fd_.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  came_in_parts_ = truncated || message.msg_controllen != 0;
  handles_lost_ = truncated && read.handles != nullptr;
  if (read.handles == nullptr || !came_in_parts_) return count;
  std::vector<Handle> came = received_handles(message);
  if (handles_lost_) return count;
  std::move(came.begin(), came.end(), std::back_inserter(*read.handles));
  return count;
}

Result<void> FdStream::check_handles(const Write& write) const {
  if (kind_ != Kind::unix_socket)
    return fail(Code::unsupported, "{}: handles travel over Unix streams only", peer_);
  if (write.handles.size() > kMaxHandles)
    return fail(Code::invalid, "{}: {} handles in one write; at most {} travel together", peer_,
                write.handles.size(), kMaxHandles);
  if (write.finished())
    return fail(Code::invalid, "{}: handles travel with at least one byte", peer_);
  return {};
}

bool FdStream::try_write(Write& write) {
  if (!write.handles.empty()) {
    if (auto checked = check_handles(write); !checked) {
      write.set(std::move(checked));
      return true;
    }
  }
  if (writes_this_turn_ >= kOperationsPerTurn) return false;
  ++writes_this_turn_;
  return attempt_write(write) == Outcome::done;
}

void FdStream::park_write(Write& write) {
  TUTTI_ASSERT(parked_write_ == nullptr, "one strand writes a stream at a time");
  const bool gave_way = std::exchange(writes_this_turn_, 0) >= kOperationsPerTurn;
  if (gave_way && attempt_write(write) == Outcome::done) return write.wake();
  parked_write_ = &write;
  listen_for_room(true);
}

void FdStream::withdraw_write(Write&) {
  parked_write_ = nullptr;
  listen_for_room(false);
}

FdStream::Outcome FdStream::attempt_write(Write& write) {
  full_ = false;
  for (int i = 0; i < kSendsPerTurn; ++i) {
    if (write.finished()) {
      write.set({});
      return Outcome::done;
    }
    const ssize_t count = send(write);
    if (count >= 0) {
      write.advance(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      full_ = true;
      return Outcome::blocked;
    } else if (errno != EINTR) {
      write.set(fail(error(errno, "write")));
      return Outcome::done;
    }
  }
  return Outcome::turn_over;
}

ssize_t FdStream::send(const Write& write) {
  std::array<iovec, kPartsPerSend> parts;
  const auto left = write.parts();
  const size_t count = std::min(left.size(), kPartsPerSend);
  for (size_t i = 0; i < count; ++i)
    parts[i] = {const_cast<std::byte*>(left[i].data()), left[i].size()};
  parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + write.offset();
  parts[0].iov_len -= write.offset();
  if (!socket()) return writev(fd_.number(), parts.data(), static_cast<int>(count));
  if (count == 1 && write.handles.empty())
    return ::send(fd_.number(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);

  alignas(cmsghdr) HandleRoom room;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  if (!write.handles.empty()) attach_handles(message, write.handles, room);
  return sendmsg(fd_.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// A Unix socket or pipe reports room each time the other end reads, so we ask only while a write
// waits. TCP reports it only after a write was refused, and may as well go on being asked.
void FdStream::listen_for_room(bool wanted) {
  const bool keep = wanted ? told_of_room_ && full_ : kind_ == Kind::tcp || !told_of_room_;
  if (keep || !fd_.open()) return;
  told_of_room_ = wanted;
  loop_.change(fd_.number(), wanted ? kReadEvents | EPOLLOUT : kReadEvents, *this);
}

void FdStream::on_ready(uint32_t events) {
  if ((events & kEndEvents) != 0) ended_ = true;
  if ((events & (kReadEvents | kEndEvents)) != 0) {
    readable_ = true;
    if (parked_read_ != nullptr && attempt_read(*parked_read_) == Outcome::done)
      std::exchange(parked_read_, nullptr)->wake();
  }
  if ((events & (EPOLLOUT | kEndEvents)) != 0 && parked_write_ != nullptr) {
    const Outcome outcome = attempt_write(*parked_write_);
    if (outcome == Outcome::done) {
      std::exchange(parked_write_, nullptr)->wake();
      listen_for_room(false);
    } else if (outcome == Outcome::turn_over) {
      listen_for_room(true);  // there is room: the next turn reports it again
    }
  }
}

void FdStream::keep_close() {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (kind_ != Kind::tcp) return;
  if (getsockopt(fd_.number(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  if (info.tcpi_rtt >= kCloseRoundTripUs) return;
  setsockopt(fd_.number(), SOL_SOCKET, SO_SNDBUF, &kCloseBufferBytes, sizeof kCloseBufferBytes);
}

Result<void> FdStream::shutdown_write() {
  TUTTI_ASSERT(parked_write_ == nullptr, "a write is done before its direction is closed");
  if (kind_ == Kind::terminal)
    return fail(Code::unsupported, "{}: a terminal cannot be closed in one direction", peer_);
  if (kind_ == Kind::pipe) {
    if (!fd_.open()) return {};
    loop_.remove(fd_.number(), *this);
    fd_.close();
    return {};
  }
  if (shutdown(fd_.number(), SHUT_WR) != 0) return fail(error(errno, "shut down"));
  return {};
}

Result<Credentials> FdStream::peer_credentials() const {
  if (kind_ != Kind::unix_socket)
    return fail(Code::unsupported, "{}: only Unix streams know who is at the other end", peer_);
  ucred who;
  socklen_t size = sizeof who;
  if (getsockopt(fd_.number(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return fail(error(errno, "credentials of"));
  return Credentials{who.pid, who.uid, who.gid};
}

}  // namespace tutti
