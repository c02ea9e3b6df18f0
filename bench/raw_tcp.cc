// The limit that bench_wire.py holds large messages against: blocking sockets that only send and
// receive, with the socket options our network sets.
//
//   bench_raw_tcp serve                       prints its port, runs until it is killed
//   bench_raw_tcp send PORT BYTES SECONDS     sends messages of that size; prints GB/s
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "measure.h"

namespace {

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int tcp_socket() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("socket");
  return fd;
}

void send_all(int fd, const char* data, size_t size) {
  while (size != 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    data += sent;
    size -= static_cast<size_t>(sent);
  }
}

// False at the end of the stream.
bool receive_all(int fd, char* data, size_t size) {
  while (size != 0) {
    const ssize_t got = recv(fd, data, size, 0);
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// A message is its length, then its bytes, all of which reach memory; one byte answers the last.
void serve() {
  const int listener = tcp_socket();
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    die("listen");
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) die("accept");
    uint64_t size = 0;
    std::string buffer;
    while (receive_all(fd, reinterpret_cast<char*>(&size), sizeof size)) {
      if (size == 0) send_all(fd, "!", 1);
      buffer.resize(size);
      if (!receive_all(fd, buffer.data(), size)) break;
    }
    close(fd);
  }
}

void send_messages(int port, uint64_t size, double seconds) {
  const int fd = tcp_socket();
  const sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("connect");
  const std::string buffer(size, 'x');
  for (const double length : {kWarmUpSeconds, seconds}) {
    const uint64_t start = now_ns();
    const uint64_t until = start + static_cast<uint64_t>(length * 1e9);
    uint64_t sent = 0;
    while (now_ns() < until) {
      send_all(fd, reinterpret_cast<const char*>(&size), sizeof size);
      send_all(fd, buffer.data(), size);
      sent += size;
    }
    const uint64_t nothing = 0;
    char answer = 0;
    send_all(fd, reinterpret_cast<const char*>(&nothing), sizeof nothing);
    if (!receive_all(fd, &answer, 1)) die("recv");
    if (length == seconds)
      std::printf("%.4f\n", static_cast<double>(sent) / static_cast<double>(now_ns() - start));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "serve") == 0) serve();
  if (count != 5 || std::strcmp(arguments[1], "send") != 0) {
    std::fprintf(stderr, "bench_raw_tcp serve | send PORT BYTES SECONDS\n");
    return 2;
  }
  send_messages(std::atoi(arguments[2]), std::strtoull(arguments[3], nullptr, 10),
                std::atof(arguments[4]));
  return 0;
}
