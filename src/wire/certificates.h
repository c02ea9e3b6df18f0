// A certificate with its key and the authority that signed it: what a process needs to prove who it
// is and to check others. Copies share one immutable body; callable from any thread.
//
// As text it is three PEM blocks in one file: the key (PKCS #8), the certificate, the authority's
// certificate. One file, so that replacing it is one rename and key and certificate always match.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/rules.h"

// OpenSSL's X509 and EVP_PKEY, without its headers.
struct x509_st;
struct evp_pkey_st;

namespace tutti::wire {

constexpr size_t kPublicKeyBytes = 33;                 // a compressed point of P-256
constexpr size_t kMaxCertificateFileBytes = 64 << 10;  // three PEM blocks take about 2 KiB

class Certificate {
 public:
  // Takes over one reference of each object. They must belong together; from_pem() checks.
  static Result<Certificate> make(evp_pkey_st* key, x509_st* leaf, x509_st* authority);
  static Result<Certificate> from_pem(std::string_view pem);

  std::string pem() const;
  const Claim& claim() const;
  const Identity& identity() const { return claim().identity; }
  // Whether it is time for a new one: a third of its life is left, or less.
  bool needs_renewal(int64_t now_unix_s) const;
  // When needs_renewal() becomes true.
  int64_t renew_at_unix_s() const;

  evp_pkey_st* key() const;
  x509_st* leaf() const;
  x509_st* authority() const;

 private:
  struct Body;
  explicit Certificate(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

// What the certificate says, with nobody vouching for it yet (authority is empty).
Result<Claim> read_claim(x509_st& certificate);
// SHA-256 of the certificate's public key, in hex: what Claim::authority holds.
std::string key_fingerprint(x509_st& certificate);
Result<std::string> key_fingerprint(std::string_view certificate_pem);
// The key itself; of a certificate that was read before.
std::string public_key(std::string_view certificate_pem);
// Bytes nobody can guess.
std::string random_secret(size_t bytes);

}  // namespace tutti::wire
