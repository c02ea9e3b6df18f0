#include "wire/certificates.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <array>
#include <optional>

#include "wire/openssl.h"

namespace tutti::wire {

struct Certificate::Body {
  KeyPointer key;
  X509Pointer leaf;
  X509Pointer authority;
  Claim claim;
};

namespace {

std::optional<int64_t> unix_seconds(const ASN1_TIME* time) {
  const OpensslPointer<ASN1_TIME, ASN1_TIME_free> epoch(ASN1_TIME_set(nullptr, 0));
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1) return {};
  return static_cast<int64_t>(days) * 86400 + seconds;
}

// The one URI among the alternative names; a certificate with two could be two people.
Result<std::string> only_uri(X509& certificate) {
  using Names = OpensslPointer<GENERAL_NAMES, GENERAL_NAMES_free>;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();
  std::optional<std::string> uri;
  const int count = names == nullptr ? 0 : sk_GENERAL_NAME_num(names.get());
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    if (uri) return fail(Code::denied, "the certificate has more than one URI");
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uri.emplace(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                static_cast<size_t>(ASN1_STRING_length(text)));
  }
  if (!uri)
    return fail(Code::denied,
                "the certificate names nobody (no tutti:// URI in it); it was not "
                "issued by a Tutti cluster");
  return *uri;
}

}  // namespace

Result<Claim> read_claim(x509_st& certificate) {
  TRY(const std::string uri, only_uri(certificate));
  auto identity = parse_identity_uri(uri);
  if (!identity)
    return fail(Code::denied, "the certificate's identity is malformed: {}",
                identity.error().message());
  const auto not_before = unix_seconds(X509_get0_notBefore(&certificate));
  const auto not_after = unix_seconds(X509_get0_notAfter(&certificate));
  if (!not_before || !not_after)
    return fail(Code::denied, "the certificate's validity is malformed");
  // X.509 counts the last second as valid.
  return Claim{*identity, "", *not_before, *not_after + 1};
}

std::string key_fingerprint(x509_st& certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  const int done = X509_pubkey_digest(&certificate, EVP_sha256(), digest.data(), &size);
  TUTTI_ASSERT(done == 1, "a certificate has a public key");
  std::string hex;
  for (unsigned i = 0; i < size; ++i) fmt::format_to(std::back_inserter(hex), "{:02x}", digest[i]);
  return hex;
}

Result<std::string> key_fingerprint(std::string_view certificate_pem) {
  const BioPointer bio = read_bio(certificate_pem);
  const X509Pointer certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate)
    return fail(Code::corrupt, "the certificate is damaged ({})", take_openssl_errors());
  return key_fingerprint(*certificate);
}

std::string public_key(std::string_view certificate_pem) {
  const BioPointer bio = read_bio(certificate_pem);
  const X509Pointer certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  TUTTI_ASSERT(certificate != nullptr, "a certificate that was read before");
  EVP_PKEY* key = X509_get0_pubkey(certificate.get());
  EVP_PKEY_set_utf8_string_param(key, OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT, "compressed");
  std::string bytes(kPublicKeyBytes, '\0');
  size_t size = 0;
  const int got = EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY,
                                                  reinterpret_cast<unsigned char*>(bytes.data()),
                                                  bytes.size(), &size);
  TUTTI_ASSERT(got == 1 && size == kPublicKeyBytes, "a key of P-256");
  return bytes;
}

std::string random_secret(size_t bytes) {
  std::string secret(bytes, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(bytes));
  TUTTI_ASSERT(made == 1, "the kernel has random bytes");
  return secret;
}

Result<Certificate> Certificate::make(evp_pkey_st* key, x509_st* leaf, x509_st* authority) {
  auto body =
      std::make_shared<Body>(Body{KeyPointer(key), X509Pointer(leaf), X509Pointer(authority), {}});
  TRY(body->claim, read_claim(*leaf));
  body->claim.authority = key_fingerprint(*authority);
  return Certificate(std::move(body));
}

Result<Certificate> Certificate::from_pem(std::string_view pem) {
  if (pem.size() > kMaxCertificateFileBytes)
    return fail(Code::invalid, "a certificate file has {} bytes at most", kMaxCertificateFileBytes);
  const BioPointer bio = read_bio(pem);
  KeyPointer key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  X509Pointer leaf(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  X509Pointer authority(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!key || !leaf || !authority)
    return fail(Code::corrupt,
                "{} is missing or damaged ({}); a certificate file holds a PRIVATE "
                "KEY and two CERTIFICATE blocks: the holder's, then the authority's",
                !key    ? "the key"
                : !leaf ? "the certificate"
                        : "the authority's certificate",
                take_openssl_errors());
  if (X509_check_private_key(leaf.get(), key.get()) != 1) {
    ERR_clear_error();
    return fail(Code::corrupt, "the key is not the certificate's");
  }
  if (X509_verify(leaf.get(), X509_get0_pubkey(authority.get())) != 1) {
    ERR_clear_error();
    return fail(Code::corrupt, "the authority in the file did not sign the certificate in it");
  }
  return make(key.release(), leaf.release(), authority.release());
}

std::string Certificate::pem() const {
  const BioPointer bio = write_bio();
  const bool written =
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key(), nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
      PEM_write_bio_X509(bio.get(), leaf()) == 1 && PEM_write_bio_X509(bio.get(), authority()) == 1;
  TUTTI_ASSERT(written, "PEM of a valid certificate");
  return bio_text(*bio);
}

int64_t Certificate::renew_at_unix_s() const {
  const int64_t life = claim().not_after_unix_s - claim().not_before_unix_s;
  return claim().not_after_unix_s - life / 3;
}
bool Certificate::needs_renewal(int64_t now_unix_s) const {
  return now_unix_s >= renew_at_unix_s();
}

const Claim& Certificate::claim() const { return body_->claim; }
evp_pkey_st* Certificate::key() const { return body_->key.get(); }
x509_st* Certificate::leaf() const { return body_->leaf.get(); }
x509_st* Certificate::authority() const { return body_->authority.get(); }

}  // namespace tutti::wire
