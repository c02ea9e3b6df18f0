#include "world/sim/network.h"

#include <cerrno>
#include <charconv>

#include "world/sim/connecting.h"
#include "world/sim/simulator.h"

namespace tutti {

namespace {

bool means_this_host(std::string_view name) {
  return name == "127.0.0.1" || name == "localhost" || name == "::1";
}

bool means_all_interfaces(std::string_view name) { return name == "0.0.0.0" || name == "::"; }

}  // namespace

// ---- Ports ----

SimListener* HostPorts::find(const Address& address, bool from_outside) const {
  for (SimListener* listener : listeners_) {
    const Address& bound = listener->address();
    if (bound.kind != address.kind || bound.port != address.port) continue;
    if (bound.kind == Address::Kind::unix_socket && bound.host != address.host) continue;
    if (from_outside && means_this_host(bound.host)) continue;
    return listener;
  }
  return nullptr;
}

bool HostPorts::taken(const Address& address) const { return find(address, false) != nullptr; }

Result<Address> HostPorts::free_port(Address address) {
  if (address.kind == Address::Kind::tcp && address.port == 0) {
    do {
      address.port = next_port_;
      next_port_ = next_port_ == 0xFFFF ? kFirstFreePort : static_cast<uint16_t>(next_port_ + 1);
    } while (taken(address));
  }
  if (taken(address)) return fail_errno(EADDRINUSE, "listen on {}", address.text());
  return address;
}

std::vector<std::string> HostPorts::sockets_in(std::string_view folder) const {
  std::vector<std::string> names;
  for (const SimListener* listener : listeners_) {
    const Address& address = listener->address();
    const std::string_view path = address.host;
    if (address.kind != Address::Kind::unix_socket || !path.starts_with(folder)) continue;
    const std::string_view rest = path.substr(folder.size());
    if (rest.starts_with('/') && rest.find('/', 1) == std::string_view::npos)
      names.emplace_back(rest.substr(1));
  }
  return names;
}

void HostPorts::release(const SimListener& listener) { std::erase(listeners_, &listener); }

// ---- Listening ----

class SimListener::Accept final : public Waiter {
 public:
  explicit Accept(SimListener& listener) : listener_(listener) {}
  bool await_ready() {
    if (cancelled_already()) {
      result_ = fail(cancelled_error());
      return true;
    }
    auto& waiting = listener_.queue().waiting;
    if (waiting.empty()) return false;
    result_ = std::move(waiting.front());
    waiting.erase(waiting.begin());
    return true;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    listener_.queue().acceptors.push_back(*this);
  }
  Result<std::unique_ptr<Stream>> await_resume() { return std::move(result_); }

  void complete(std::unique_ptr<SimStream> stream) {
    result_ = std::move(stream);
    wake();
  }

 private:
  void on_cancel() override {
    result_ = fail(cancelled_error());
    wake();
  }
  SimListener& listener_;
  Result<std::unique_ptr<Stream>> result_;
};

SimListener::~SimListener() {
  if (bound_) host_.ports().release(*this);
}

Result<void> SimListener::bind(Address address) {
  TRY(address_, host_.ports().free_port(std::move(address)));
  host_.ports().add(*this);
  bound_ = true;
  return {};
}

Task<Result<std::unique_ptr<Stream>>> SimListener::accept() {
  Accept accept(*this);
  co_return co_await accept;
}

// Who came before is given by a coroutine, after that nobody needs to wait.
void SimListener::serve(ConnectionTaker& taker, Scope& scope) {
  if (queue_ != nullptr && !queue_->waiting.empty()) return Listener::serve(taker, scope);
  taker_ = &taker;
}

bool SimListener::offer(std::unique_ptr<SimStream> stream) {
  if (taker_ != nullptr) {
    taker_->on_connection(std::move(stream));
    return true;
  }
  if (!queue().acceptors.empty()) {
    queue_->acceptors.pop_front().complete(std::move(stream));
    return true;
  }
  if (queue_->waiting.size() >= kBacklog) return false;
  queue_->waiting.push_back(std::move(stream));
  return true;
}

// ---- Network ----

Task<Result<std::unique_ptr<Listener>>> SimNetwork::listen(Address address) {
  if (address.kind == Address::Kind::tcp && !means_all_interfaces(address.host)) {
    CO_TRY(const uint32_t where, resolve(address));
    if (where != host_->index())
      co_return fail(Code::invalid, "{} cannot listen as {}", host_->host_name(), address.text());
  }
  auto listener = std::make_unique<SimListener>(*host_, credentials());
  CO_TRY_DO(listener->bind(std::move(address)));
  co_return std::unique_ptr<Listener>(std::move(listener));
}

Result<uint32_t> SimNetwork::resolve(const Address& address) const {
  if (address.kind == Address::Kind::unix_socket) return host_->index();
  if (means_this_host(address.host)) return host_->index();
  constexpr std::string_view kPrefix = "host";
  const std::string_view name = address.host;
  uint32_t index = 0;
  if (name.starts_with(kPrefix)) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index < host_->simulator().hosts())
      return index;
  }
  return fail(Code::not_found, "there is no host called '{}'", name);
}

Task<Result<std::unique_ptr<Stream>>> SimNetwork::connect(Address address) {
  CO_TRY(const uint32_t where, resolve(address));
  Connecting connecting(*host_, host_->simulator().host(where), std::move(address), credentials());
  auto result = co_await connecting;
  co_return result;
}

Result<Network::Pair> SimNetwork::pair() {
  SimStream::Pair ends = SimStream::connect(*host_, *host_);
  ends.a->set_peer_credentials(credentials());
  ends.b->set_peer_credentials(credentials());
  Handle theirs = host_->handles().add({.stream = std::move(ends.b)});
  return Pair{std::move(ends.a), std::move(theirs)};
}

Result<std::unique_ptr<Stream>> SimNetwork::adopt(Handle handle) {
  TRY(OpenThing thing, host_->handles().find(handle));
  if (thing.stream == nullptr)
    return fail(Code::invalid, "handle {} is no stream", handle.number());
  return std::make_unique<AdoptedStream>(std::move(thing.stream));
}

}  // namespace tutti
