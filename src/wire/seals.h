// Makes the Seal that fits a connection: peer credentials for Unix sockets, certificates for TCP.
// One object per process holds who we are; both worlds have theirs. Callable from one executor.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "wire/certificates.h"
#include "wire/rules.h"
#include "wire/seal.h"
#include "world/world.h"

namespace tutti::wire {

struct SealRequest {
  Address::Kind kind = Address::Kind::tcp;
  Side side = Side::connecting;
  Expectation expected;
};

class Seals {
 public:
  virtual ~Seals() = default;
  // Code::denied, with what to do, when we have no certificate and the connection needs one.
  virtual Result<std::unique_ptr<Seal>> make(SealRequest request) = 0;
};

// TLS and Unix credentials. Without a certificate only Unix sockets are sealed. The world must
// outlive it and the seals it makes.
class CertifiedSeals final : public Seals {
 public:
  static Result<std::unique_ptr<CertifiedSeals>> make(
      World& world, const std::optional<Certificate>& certificate);
  ~CertifiedSeals() override;

  Result<std::unique_ptr<Seal>> make(SealRequest request) override;
  // Connections from now on use this one; those that exist go on.
  Result<void> renew(const Certificate& certificate);

 private:
  explicit CertifiedSeals(World& world);
  struct Tls;
  World& world_;
  std::unique_ptr<Tls> tls_;
};

// The simulated handshake in place of TLS; `charge` is called once per handshake.
std::unique_ptr<Seals> make_sim_seals(World& world, Claim ours, std::function<void()> charge);
// The same of a claim that is made when it is needed, for very many hosts.
std::unique_ptr<Seals> make_sim_seals(World& world, std::function<Claim()> ours,
                                      std::function<void()> charge);

}  // namespace tutti::wire
