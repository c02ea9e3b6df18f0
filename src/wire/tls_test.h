// What the tests of seals share: a cluster's authority, two ends in memory, a handshake on them.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>

#include "wire/authority.h"
#include "wire/faulty_stream.h"
#include "wire/tls.h"
#include "world/manual_clock.h"
#include "world/scope.h"

namespace tutti::wire {

constexpr int64_t kNow_s = 1'800'000'000;  // 2027-01-15 08:00:00 UTC

inline const Authority& lab_authority() {
  static const Authority authority = Authority::create("lab", kNow_s).value();
  return authority;
}

struct Person {
  Role role = Role::agent;
  std::string name = "node3";
  int64_t issued_s = kNow_s;
  int64_t lifetime_s = kDefaultLifetime_s;
};

inline Certificate issue(const Authority& authority, const Person& person) {
  const IssueOptions options{person.role, person.name, person.lifetime_s};
  return authority.issue(options, person.issued_s).value();
}
inline std::shared_ptr<const TlsContext> context_of(const Authority& authority,
                                                    const Person& person) {
  return TlsContext::make(issue(authority, person)).value();
}
inline std::shared_ptr<const TlsContext> agent_context() {
  static const auto context = context_of(lab_authority(), {});
  return context;
}
inline std::shared_ptr<const TlsContext> head_context() {
  static const auto context = context_of(lab_authority(), {Role::head, "head"});
  return context;
}

// A clock that begins at kNow_s.
class DatedClock final : public Clock {
 public:
  explicit DatedClock(Clock& inner) : inner_(inner) {}
  Instant now() const override { return inner_.now(); }
  int64_t unix_ns() const override { return kNow_s * 1'000'000'000 + to_ns(now()); }

 private:
  void do_arm(Timer&, Instant) override { TUTTI_ASSERT(false, "seals arm no timers"); }
  void do_disarm(Timer&) override {}
  Clock& inner_;
};

// A clock at kNow_s on which two seals speak over a pair of faulty streams.
struct SealBench {
  SealBench() : streams(FaultyStream::make_pair()) {}
  ~SealBench() { CHECK(root.size() == 0); }

  std::unique_ptr<Seal> tls(std::shared_ptr<const TlsContext> context, TlsOptions options) {
    return make_tls_seal(std::move(context), dated, std::move(options));
  }
  // A head that accepts and an agent that connects, both of cluster lab.
  void make_tls_pair() {
    client = tls(agent_context(), {.side = Side::connecting});
    server = tls(head_context(), {.side = Side::accepting});
  }

  // Runs both handshakes until they end, or for as long as `allowed`. A side that ends drops its
  // stream, as a program would, when it failed.
  void shake_hands(Duration allowed = 10s) {
    root.spawn(shake(*this, *client, streams.first, client_result, allowed));
    root.spawn(shake(*this, *server, streams.second, server_result, allowed));
    clock.advance(allowed + 1s);
    CHECK(client_result.has_value());
    CHECK(server_result.has_value());
  }
  static Task<void> shake(SealBench& bench, Seal& seal, std::unique_ptr<FaultyStream>& stream,
                          std::optional<Result<Identity>>& result, Duration allowed) {
    const Instant deadline = bench.clock.now() + allowed;
    Task<Result<Identity>> work = seal.handshake(*stream);
    auto identity = co_await with_deadline(bench.clock, deadline, std::move(work));
    if (!identity) stream.reset();
    result.emplace(std::move(identity));
  }
  // What the client reads after the server refused it: the alert that came meanwhile.
  Result<void> client_reads() {
    std::string plain;
    const std::string travelled = std::exchange(streams.first->incoming().bytes, {});
    return client->open(as_bytes(travelled), plain);
  }

  Executor executor;
  ManualClock clock;
  DatedClock dated{clock};
  Scope root{Scope::Root{}};
  FaultyStream::Pair streams;
  std::unique_ptr<Seal> client;
  std::unique_ptr<Seal> server;
  std::optional<Result<Identity>> client_result;
  std::optional<Result<Identity>> server_result;
};

inline bool says(const Error& error, std::string_view words) {
  const bool found = error.text().find(words) != std::string::npos;
  if (!found) MESSAGE(error.text());
  return found;
}

}  // namespace tutti::wire
