// Where hosts come that want to join: makes tokens, and signs certificates for who shows one.
//
// A token is "tutti-" and base32 of the authority's public key, a secret and when it ends. The key
// is how the joining host knows the head, the secret is how the head knows the host; it is good for
// one host, and forgotten when the head ends.
#pragma once

#include <map>
#include <string>

#include "cluster/head.pb.h"
#include "wire/authority.h"
#include "wire/certificates.h"
#include "world/world.h"

namespace tutti {

// Members renew theirs when a third of it is left; one that is away for longer joins again.
constexpr int64_t kMemberLifetime_s = 365 * wire::kDay_s;

struct JoinToken {
  std::string authority_key;
  std::string secret;
  int64_t expires_unix_s = 0;

  std::string text() const;
  static Result<JoinToken> parse(std::string_view text);
};

class JoinDesk {
 public:
  // What it signs is good for so long.
  JoinDesk(World& world, wire::Authority authority, int64_t lifetime_s = kMemberLifetime_s);

  // The head's addresses, for those who join.
  void set_addresses(std::string tree, std::string api);
  Result<cluster::TokenReply> make_token(Duration lifetime, std::string user);
  Result<cluster::JoinReply> admit(const cluster::JoinRequest& request);
  // For somebody who has proved to be this one.
  Result<cluster::RenewReply> renew(const cluster::RenewRequest& request,
                                    const wire::Identity& member);

 private:
  void forget_expired();
  int64_t now_unix_s() const { return world_.clock().unix_ns() / 1'000'000'000; }

  World& world_;
  wire::Authority authority_;
  int64_t lifetime_s_;
  std::string tree_;
  std::string api_;
  struct Promise {
    int64_t until_unix_s;
    std::string user;  // who may join with it
  };
  std::map<std::string, Promise> secrets_;
};

}  // namespace tutti
