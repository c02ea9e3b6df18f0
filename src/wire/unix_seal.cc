#include "wire/unix_seal.h"

#include "wire/plain_copy.h"

namespace tutti::wire {

namespace {

constexpr uid_t kRoot = 0;

class UnixSeal final : public PlainCopy {
 public:
  UnixSeal(uid_t own_uid, Side side) : own_uid_(own_uid), side_(side) {}

  Task<Result<Identity>> handshake(Stream& stream) override { co_return check(stream); }

 private:
  Result<Identity> check(Stream& stream) const {
    auto peer = stream.peer_credentials();
    if (!peer) return fail(peer.error().context("asking who is at the other end of a Unix socket"));
    const bool welcome = peer->uid == own_uid_ || peer->uid == kRoot ||
                         (own_uid_ == kRoot && side_ == Side::connecting);
    if (!welcome)
      return fail(
          Code::denied,
          "the process at the other end (pid {}) runs as uid {}, we run as uid {}; only the "
          "same user and root may talk here",
          peer->pid, peer->uid, own_uid_);
    return Identity{"", Role::user, fmt::format("uid {}", peer->uid)};
  }

  uid_t own_uid_;
  Side side_;
};

}  // namespace

std::unique_ptr<Seal> make_unix_seal(uid_t own_uid, Side side) {
  return std::make_unique<UnixSeal>(own_uid, side);
}

}  // namespace tutti::wire
