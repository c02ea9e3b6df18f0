// The authority of a cluster: the one key that vouches for everybody in it. Pure computation;
// authority_folder.h keeps it on disk. Copies share one key; callable from any thread.
//
// Keys are P-256: OpenSSL 3.0 signs and verifies with them almost twice as fast as with Ed25519,
// and a handshake is mostly that (docs/security.md has the numbers).
#pragma once

#include <memory>
#include <string>

#include "wire/certificates.h"

namespace tutti::wire {

constexpr int64_t kDay_s = 86'400;
constexpr int64_t kAuthorityLifetime_s = 3650 * kDay_s;
constexpr int64_t kDefaultLifetime_s = 30 * kDay_s;
// Certificates begin this much before they are issued, since hosts disagree about the time.
constexpr int64_t kClockSkew_s = 3600;

struct IssueOptions {
  Role role = Role::user;
  std::string name;
  int64_t lifetime_s = kDefaultLifetime_s;  // ends with the authority's own, at the latest
};

// A key, and the request for a certificate over it that proves that we have it, both as PEM.
struct SigningRequest {
  std::string key_pem;
  std::string request_pem;

  static Result<SigningRequest> make();
};
constexpr size_t kMaxSigningRequestBytes = 4 << 10;  // one takes about 400

class Authority {
 public:
  static Result<Authority> create(const std::string& cluster, int64_t now_unix_s);
  static Result<Authority> from_pem(std::string_view certificate_pem, std::string_view key_pem);

  const std::string& cluster() const { return cluster_; }
  std::string certificate_pem() const;
  std::string key_pem() const;

  // A new key and a certificate over it that says who its holder is.
  Result<Certificate> issue(const IssueOptions& options, int64_t now_unix_s) const;
  // A certificate, as PEM, over the key of a request; what else the request says does not count.
  Result<std::string> sign(std::string_view request_pem, const IssueOptions& options,
                           int64_t now_unix_s) const;

 private:
  Result<x509_st*> certify(evp_pkey_st& key, const IssueOptions& options, int64_t now_unix_s) const;
  Authority(std::string cluster, x509_st* certificate, evp_pkey_st* key);

  std::string cluster_;
  std::shared_ptr<x509_st> certificate_;
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace tutti::wire
