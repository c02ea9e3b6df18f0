// How OpenSSL's chain verification hands over to our rules. For tls*.cc only.
#pragma once

#include "base/result.h"
#include "wire/rules.h"

struct ssl_st;
struct ssl_ctx_st;
struct x509_store_ctx_st;

namespace tutti::wire {

// What decides, in the middle of a handshake, whether the other side's certificate will do. It must
// leave in the chain's context the error that fits: OpenSSL tells the other side by an alert.
class TlsVerifier {
 public:
  virtual bool verify(x509_store_ctx_st& chain) = 0;

 protected:
  ~TlsVerifier() = default;
};

// Every connection of the context asks the verifier attached to it.
void verify_with_attached(ssl_ctx_st& context);
void attach_verifier(ssl_st& ssl, TlsVerifier& verifier);

// Lets those in who show no certificate.
void allow_guests(ssl_st& ssl);

// Whether the authority with this public key vouches for a head. Gives who it is, or Code::denied.
Result<Identity> verify_head(x509_store_ctx_st& chain, const std::string& authority_key,
                             int64_t now_unix_s);

// Checks signatures, then the rules. Gives who they are, or Code::denied.
Result<Identity> verify_peer(x509_store_ctx_st& chain, const Claim& ours,
                             const Expectation& expected, Side side, int64_t now_unix_s);

}  // namespace tutti::wire
