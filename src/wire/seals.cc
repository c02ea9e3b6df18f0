#include "wire/seals.h"

#include "wire/sim_seal.h"
#include "wire/tls.h"
#include "wire/unix_seal.h"

namespace tutti::wire {

struct CertifiedSeals::Tls {
  std::shared_ptr<const TlsContext> context;
};

CertifiedSeals::CertifiedSeals(World& world) : world_(world) {}
CertifiedSeals::~CertifiedSeals() = default;

Result<std::unique_ptr<CertifiedSeals>> CertifiedSeals::make(
    World& world, const std::optional<Certificate>& certificate) {
  std::unique_ptr<CertifiedSeals> seals(new CertifiedSeals(world));
  if (certificate) TRY_DO(seals->renew(*certificate));
  return seals;
}

Result<void> CertifiedSeals::renew(const Certificate& certificate) {
  TRY(auto context, TlsContext::make(certificate));
  tls_ = std::make_unique<Tls>(Tls{std::move(context)});
  return {};
}

Result<std::unique_ptr<Seal>> CertifiedSeals::make(SealRequest request) {
  if (request.kind == Address::Kind::unix_socket)
    return make_unix_seal(world_.processes().own_uid(), request.side);
  if (tls_ == nullptr)
    return fail(Code::denied,
                "a TCP connection needs a certificate and we have none; get one from the host that "
                "holds the cluster's authority, or use a unix: address");
  return make_tls_seal(tls_->context, world_.clock(),
                       {.side = request.side, .expected = std::move(request.expected)});
}

namespace {

class SimSeals final : public Seals {
 public:
  SimSeals(World& world, std::function<Claim()> ours, std::function<void()> charge)
      : world_(world), ours_(std::move(ours)), charge_(std::move(charge)) {}

  Result<std::unique_ptr<Seal>> make(SealRequest request) override {
    if (request.kind == Address::Kind::unix_socket)
      return make_unix_seal(world_.processes().own_uid(), request.side);
    return make_sim_seal(world_.clock(), {.side = request.side,
                                          .ours = ours_(),
                                          .expected = std::move(request.expected),
                                          .charge = charge_});
  }

 private:
  World& world_;
  std::function<Claim()> ours_;
  std::function<void()> charge_;
};

}  // namespace

std::unique_ptr<Seals> make_sim_seals(World& world, Claim ours, std::function<void()> charge) {
  return make_sim_seals(world, [ours = std::move(ours)] { return ours; }, std::move(charge));
}

std::unique_ptr<Seals> make_sim_seals(World& world, std::function<Claim()> ours,
                                      std::function<void()> charge) {
  return std::make_unique<SimSeals>(world, std::move(ours), std::move(charge));
}

}  // namespace tutti::wire
