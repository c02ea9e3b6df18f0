#include "wire/tls_verify.h"

#include <openssl/err.h>

#include <optional>

#include "wire/certificates.h"
#include "wire/openssl.h"

namespace tutti::wire {

namespace {

TlsVerifier& verifier_of(X509_STORE_CTX& chain) {
  void* ssl = X509_STORE_CTX_get_ex_data(&chain, SSL_get_ex_data_X509_STORE_CTX_idx());
  return *static_cast<TlsVerifier*>(SSL_get_app_data(static_cast<SSL*>(ssl)));
}

int ask_verifier(X509_STORE_CTX* chain, void*) {
  return verifier_of(*chain).verify(*chain) ? 1 : 0;
}

// The rules judge when a certificate holds, in their words; OpenSSL judges the authority's.
int leave_time_to_rules(int ok, X509_STORE_CTX* chain) {
  const int error = X509_STORE_CTX_get_error(chain);
  const bool of_time =
      error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID;
  if (ok == 1 || !of_time || X509_STORE_CTX_get_error_depth(chain) != 0) return ok;
  X509_STORE_CTX_set_error(chain, X509_V_OK);
  return 1;
}

bool means_nobody_vouches(int error) {
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED: return true;
    default: return false;
  }
}

// OpenSSL turns each into an alert of its own; tls_errors.cc reads them back.
int verify_error_of(Refusal why) {
  switch (why) {
    case Refusal::unknown_authority:
    case Refusal::other_cluster: return X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
    case Refusal::expired: return X509_V_ERR_CERT_HAS_EXPIRED;
    case Refusal::not_yet_valid: return X509_V_ERR_CERT_NOT_YET_VALID;
    case Refusal::role: return X509_V_ERR_INVALID_PURPOSE;
    case Refusal::name: return X509_V_ERR_APPLICATION_VERIFICATION;
  }
  return X509_V_ERR_UNSPECIFIED;
}

// For what the other side can do nothing about and only our log explains: OpenSSL has no alert of
// its own for this error and says "certificate unknown".
constexpr int kUnfit = X509_V_ERR_UNNESTED_RESOURCE;

// Whether our authority signed the certificate; an error when it is unfit for another reason.
Result<bool> our_authority_vouches(X509_STORE_CTX& chain, int64_t now_unix_s) {
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(&chain), now_unix_s);
  X509_STORE_CTX_set_verify_cb(&chain, leave_time_to_rules);
  const bool verified = X509_verify_cert(&chain) == 1;
  ERR_clear_error();
  if (verified) return true;
  const int error = X509_STORE_CTX_get_error(&chain);
  if (means_nobody_vouches(error)) return false;
  if (error == X509_V_ERR_CERT_HAS_EXPIRED)
    return fail(Code::denied,
                "our cluster's authority itself has expired; make a new one and issue "
                "all certificates anew");
  return fail(Code::denied, "the other side's certificate is unfit: {}",
              X509_verify_cert_error_string(error));
}

}  // namespace

void verify_with_attached(ssl_ctx_st& context) {
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(&context, ask_verifier, nullptr);
}

void attach_verifier(ssl_st& ssl, TlsVerifier& verifier) { SSL_set_app_data(&ssl, &verifier); }

void allow_guests(ssl_st& ssl) { SSL_set_verify(&ssl, SSL_VERIFY_PEER, nullptr); }

Result<Identity> verify_head(x509_store_ctx_st& chain, const std::string& authority_key,
                             int64_t now_unix_s) {
  X509& leaf = *X509_STORE_CTX_get0_cert(&chain);
  TRY(const KeyPointer key, key_from(authority_key));
  const bool vouched = X509_verify(&leaf, key.get()) == 1;
  ERR_clear_error();
  auto claim = read_claim(leaf);
  if (!vouched || !claim) {
    X509_STORE_CTX_set_error(&chain, verify_error_of(Refusal::unknown_authority));
    return fail(Code::denied,
                "the authority of the token did not sign the certificate of the other side: the "
                "token is of another cluster, or the address is");
  }
  claim->authority = key_fingerprint(leaf);
  Claim ours = *claim;  // the cluster is whichever the authority's is
  const Expectation expected{.roles = {Role::head}, .name = ""};
  if (const auto refused = judge(*claim, ours, expected, Side::connecting, now_unix_s)) {
    X509_STORE_CTX_set_error(&chain, verify_error_of(refused->why));
    return fail(Code::denied, "{}", refused->text);
  }
  return claim->identity;
}

Result<Identity> verify_peer(x509_store_ctx_st& chain, const Claim& ours,
                             const Expectation& expected, Side side, int64_t now_unix_s) {
  auto vouched = our_authority_vouches(chain, now_unix_s);
  auto claim = read_claim(*X509_STORE_CTX_get0_cert(&chain));
  if (!vouched || !claim) {
    X509_STORE_CTX_set_error(&chain, kUnfit);
    return fail(!vouched ? vouched.error() : claim.error());
  }
  if (*vouched) claim->authority = ours.authority;
  if (const auto refused = judge(*claim, ours, expected, side, now_unix_s)) {
    X509_STORE_CTX_set_error(&chain, verify_error_of(refused->why));
    return fail(Code::denied, "{}", refused->text);
  }
  return claim->identity;
}

}  // namespace tutti::wire
