#include "world/network.h"

#include <charconv>

#include "world/scope.h"

namespace tutti {

Result<Address> Address::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (path.empty()) return fail(Code::invalid, "address '{}' has no path after unix:", text);
    return unix_socket(std::string(path));
  }
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  if (colon == std::string_view::npos || host.empty())
    return fail(Code::invalid, "address '{}' is not host:port, [v6]:port or unix:/path", text);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fail(Code::invalid, "address '{}': write IPv6 as [{}]:port", text, host);
  }
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size())
    return fail(Code::invalid, "address '{}': '{}' is not a port (0 to 65535)", text, digits);
  return tcp(std::string(host), port);
}

Address Address::tcp(std::string host, uint16_t port) { return {Kind::tcp, std::move(host), port}; }

Address Address::unix_socket(std::string path) { return {Kind::unix_socket, std::move(path), 0}; }

std::string Address::text() const {
  if (kind == Kind::unix_socket) return "unix:" + host;
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

namespace {

Task<void> accept_for(Listener& listener, ConnectionTaker& taker) {
  while (true) {
    auto stream = co_await listener.accept();
    if (stream) {
      taker.on_connection(std::move(*stream));
      continue;
    }
    // Out of descriptors: some may be closed by the next time, before which accept() pauses.
    if (stream.error().code() == Code::exhausted) continue;
    if (stream.error().code() != Code::cancelled) taker.on_accept_failed(stream.error());
    co_return;
  }
}

}  // namespace

void Listener::serve(ConnectionTaker& taker, Scope& scope) {
  scope.spawn(accept_for(*this, taker));
}

}  // namespace tutti
