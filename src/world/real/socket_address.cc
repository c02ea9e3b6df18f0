#include "world/real/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace tutti {

namespace {

template <class Raw>
SocketAddress from(const Raw& raw) {
  SocketAddress address;
  std::memcpy(&address.storage, &raw, sizeof raw);
  address.size = sizeof raw;
  return address;
}

template <class Raw>
Raw to(const SocketAddress& address) {
  Raw raw;
  std::memcpy(&raw, &address.storage, sizeof raw);
  return raw;
}

}  // namespace

std::optional<SocketAddress> SocketAddress::numeric(const std::string& host, uint16_t port) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(port)};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) return from(v4);
  sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = htons(port)};
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) return from(v6);
  return std::nullopt;
}

Result<SocketAddress> SocketAddress::unix_socket(const std::string& path) {
  sockaddr_un raw{.sun_family = AF_UNIX};
  constexpr size_t kLongest = sizeof raw.sun_path - 1;
  if (path.size() > kLongest || path.empty() || path.find('\0') != std::string::npos)
    return fail(Code::invalid, "unix:{}: a socket's path has 1 to {} bytes, this has {}", path,
                kLongest, path.size());
  std::copy(path.begin(), path.end(), raw.sun_path);
  SocketAddress address = from(raw);
  if (!path.starts_with('@')) return address;
  // A name of the kernel's, without a file: a zero byte, and no more than what it has.
  raw.sun_path[0] = '\0';
  address = from(raw);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return address;
}

SocketAddress SocketAddress::local(int fd) {
  SocketAddress address;
  getsockname(fd, address.raw(), &address.size);
  return address;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(to<sockaddr_in>(*this).sin_port);
  if (family() == AF_INET6) return ntohs(to<sockaddr_in6>(*this).sin6_port);
  return 0;
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  if (family() == AF_INET) {
    const auto raw = to<sockaddr_in>(*this);
    inet_ntop(AF_INET, &raw.sin_addr, buffer.data(), buffer.size());
  } else if (family() == AF_INET6) {
    const auto raw = to<sockaddr_in6>(*this);
    inet_ntop(AF_INET6, &raw.sin6_addr, buffer.data(), buffer.size());
  } else {
    const auto raw = to<sockaddr_un>(*this);
    return Address::unix_socket({raw.sun_path, strnlen(raw.sun_path, sizeof raw.sun_path)}).text();
  }
  return Address::tcp(buffer.data(), port()).text();
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
}

}  // namespace tutti
