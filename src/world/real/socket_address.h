// An Address as the kernel wants it.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "world/network.h"

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  int family() const { return storage.ss_family; }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }

  // A TCP address written in numbers; nullopt for a name, which somebody has to look up.
  static std::optional<SocketAddress> numeric(const std::string& host, uint16_t port);
  // Code::invalid when the path is longer than the kernel takes.
  static Result<SocketAddress> unix_socket(const std::string& path);
  static SocketAddress local(int fd);  // of a socket that is bound

  uint16_t port() const;     // 0 unless TCP
  std::string text() const;  // "10.0.0.3:80", "[::1]:80", "unix:/path"
  bool operator==(const SocketAddress& other) const;
};

}  // namespace tutti
