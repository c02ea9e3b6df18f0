#include <openssl/err.h>

#include "wire/openssl.h"
#include "wire/tls.h"
#include "wire/tls_verify.h"

namespace tutti::wire {

namespace {

constexpr long kMaxPeerCertificateBytes = 8 << 10;  // ours take about 600 bytes

// One way to speak, so that there is nothing to negotiate down to: TLS 1.3, AES-128-GCM (a few
// GB/s a core with AES instructions), X25519, P-256 signatures.
bool choose_algorithms(SSL_CTX& context) {
  return SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(&context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_ciphersuites(&context, "TLS_AES_128_GCM_SHA256") == 1 &&
         SSL_CTX_set1_groups_list(&context, "X25519") == 1 &&
         SSL_CTX_set1_sigalgs_list(&context, "ECDSA+SHA256") == 1;
}

// Connections are few and long: resumption would only add tickets, a second way in and state.
void drop_what_we_do_not_use(SSL_CTX& context) {
  SSL_CTX_set_options(&context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(&context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_num_tickets(&context, 0);
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(&context, kMaxPeerCertificateBytes);
  SSL_CTX_set_mode(&context, SSL_MODE_RELEASE_BUFFERS);
}

}  // namespace

TlsContext::TlsContext(Claim claim, std::string authority_key, ssl_ctx_st* context)
    : claim_(std::move(claim)),
      authority_key_(std::move(authority_key)),
      context_(context, SSL_CTX_free) {}

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const Certificate& certificate) {
  SslContextPointer context(SSL_CTX_new(TLS_method()));
  if (!context || !choose_algorithms(*context) ||
      SSL_CTX_use_certificate(context.get(), certificate.leaf()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), certificate.key()) != 1 ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate.authority()) != 1)
    return fail(Code::invalid, "OpenSSL does not take the certificate of {}: {}",
                identity_text(certificate.identity()), take_openssl_errors());
  drop_what_we_do_not_use(*context);
  verify_with_attached(*context);
  return std::shared_ptr<const TlsContext>(
      new TlsContext(certificate.claim(), "", context.release()));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make_guest(std::string authority_key) {
  SslContextPointer context(SSL_CTX_new(TLS_method()));
  if (!context || !choose_algorithms(*context))
    return fail(Code::internal, "OpenSSL makes no context: {}", take_openssl_errors());
  drop_what_we_do_not_use(*context);
  verify_with_attached(*context);
  Claim nobody;
  nobody.identity.role = Role::guest;
  return std::shared_ptr<const TlsContext>(
      new TlsContext(std::move(nobody), std::move(authority_key), context.release()));
}

}  // namespace tutti::wire
