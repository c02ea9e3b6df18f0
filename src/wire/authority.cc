#include "wire/authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "wire/openssl.h"

namespace tutti::wire {

namespace {

constexpr std::string_view kAuthorityOrganisation = "Tutti authority";

std::unexpected<Error> openssl_failed(std::string_view doing) {
  return fail(Code::internal, "{}: OpenSSL said: {}", doing, take_openssl_errors());
}

Result<KeyPointer> make_key() {
  KeyPointer key(EVP_EC_gen("P-256"));
  if (!key) return openssl_failed("making a P-256 key");
  return key;
}

// Positive and hard to guess, as RFC 5280 wants: 16 random bytes, the first bit cleared.
bool set_random_serial(X509& certificate) {
  std::array<unsigned char, 16> bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  const OpensslPointer<BIGNUM, BN_free> number(
      BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) != nullptr;
}

bool add_to_subject(X509& certificate, int field, std::string_view text) {
  return text.empty() ||
         X509_NAME_add_entry_by_NID(X509_get_subject_name(&certificate), field, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

std::string from_subject(X509& certificate, int field) {
  std::array<char, 256> text;
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), field,
                                             text.data(), static_cast<int>(text.size()));
  return {text.data(), size < 0 ? 0 : static_cast<size_t>(size)};
}

struct Extension {
  int id;
  std::string value;
};

bool add_extensions(X509& certificate, X509& issuer, std::initializer_list<Extension> extensions) {
  X509V3_CTX context{};
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  return std::all_of(extensions.begin(), extensions.end(), [&](const Extension& extension) {
    const OpensslPointer<X509_EXTENSION, X509_EXTENSION_free> made(
        X509V3_EXT_conf_nid(nullptr, &context, extension.id, extension.value.c_str()));
    return made && X509_add_ext(&certificate, made.get(), -1) == 1;
  });
}

struct Draft {
  std::string_view organisation;
  std::string common_name;
  int64_t not_before_unix_s;
  int64_t not_after_unix_s;  // the last valid second
};

// Everything but issuer, extensions and signature.
Result<X509Pointer> draft_certificate(const Draft& draft, EVP_PKEY& key) {
  X509Pointer certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !set_random_serial(*certificate) ||
      !add_to_subject(*certificate, NID_organizationName, draft.organisation) ||
      !add_to_subject(*certificate, NID_commonName, draft.common_name) ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), draft.not_before_unix_s) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), draft.not_after_unix_s) == nullptr ||
      X509_set_pubkey(certificate.get(), &key) != 1)
    return openssl_failed("drafting a certificate");
  return certificate;
}

Result<void> sign_with(X509& certificate, X509& issuer, EVP_PKEY& issuer_key) {
  if (X509_set_issuer_name(&certificate, X509_get_subject_name(&issuer)) != 1 ||
      X509_sign(&certificate, &issuer_key, EVP_sha256()) == 0)
    return openssl_failed("signing a certificate");
  return {};
}

Result<std::string> cluster_of(X509& authority) {
  if (from_subject(authority, NID_organizationName) != kAuthorityOrganisation)
    return fail(Code::corrupt, "the authority's certificate is not of a Tutti cluster");
  std::string cluster = from_subject(authority, NID_commonName);
  TRY_DO(check_name("cluster", cluster));
  return cluster;
}

int64_t last_second(X509& certificate) {
  std::tm broken{};
  const int read = ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &broken);
  TUTTI_ASSERT(read == 1, "the authority's certificate was checked when it was loaded");
  return timegm(&broken);
}

}  // namespace

Authority::Authority(std::string cluster, x509_st* certificate, evp_pkey_st* key)
    : cluster_(std::move(cluster)),
      certificate_(certificate, X509_free),
      key_(key, EVP_PKEY_free) {}

Result<Authority> Authority::create(const std::string& cluster, int64_t now_unix_s) {
  TRY_DO(check_name("cluster", cluster));
  TRY(KeyPointer key, make_key());
  const Draft draft{kAuthorityOrganisation, cluster, now_unix_s - kClockSkew_s,
                    now_unix_s + kAuthorityLifetime_s};
  TRY(X509Pointer certificate, draft_certificate(draft, *key));
  // Its own children cannot sign others: pathlen 0.
  const bool extended = add_extensions(*certificate, *certificate,
                                       {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                        {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                        {NID_subject_key_identifier, "hash"}});
  if (!extended) return openssl_failed("making the authority's certificate");
  TRY_DO(sign_with(*certificate, *certificate, *key));
  return Authority(cluster, certificate.release(), key.release());
}

Result<Authority> Authority::from_pem(std::string_view certificate_pem, std::string_view key_pem) {
  const BioPointer certificate_bio = read_bio(certificate_pem);
  const BioPointer key_bio = read_bio(key_pem);
  X509Pointer certificate(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr));
  if (!certificate)
    return fail(Code::corrupt, "the authority's certificate is damaged ({})",
                take_openssl_errors());
  KeyPointer key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr));
  if (!key)
    return fail(Code::corrupt, "the authority's key is damaged ({})", take_openssl_errors());
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return fail(Code::corrupt, "the authority's key is not its certificate's");
  }
  std::tm unused{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &unused) != 1)
    return fail(Code::corrupt, "the authority's certificate has no readable end");
  TRY(std::string cluster, cluster_of(*certificate));
  return Authority(std::move(cluster), certificate.release(), key.release());
}

std::string Authority::certificate_pem() const {
  const BioPointer bio = write_bio();
  TUTTI_ASSERT(PEM_write_bio_X509(bio.get(), certificate_.get()) == 1, "PEM of a certificate");
  return bio_text(*bio);
}

std::string Authority::key_pem() const {
  const BioPointer bio = write_bio();
  const int written =
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
  TUTTI_ASSERT(written == 1, "PEM of a key");
  return bio_text(*bio);
}

Result<SigningRequest> SigningRequest::make() {
  TRY(const KeyPointer key, make_key());
  const OpensslPointer<X509_REQ, X509_REQ_free> request(X509_REQ_new());
  const BioPointer key_bio = write_bio();
  const BioPointer request_bio = write_bio();
  if (!request || X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0 ||
      PEM_write_bio_PKCS8PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                    nullptr) != 1 ||
      PEM_write_bio_X509_REQ(request_bio.get(), request.get()) != 1)
    return openssl_failed("making a signing request");
  return SigningRequest{bio_text(*key_bio), bio_text(*request_bio)};
}

Result<x509_st*> Authority::certify(evp_pkey_st& key, const IssueOptions& options,
                                    int64_t now_unix_s) const {
  TRY_DO(check_name("name", options.name));
  if (options.lifetime_s <= 0 || options.lifetime_s > kAuthorityLifetime_s)
    return fail(Code::invalid, "a certificate lives for 1 second to {} days, not {} seconds",
                kAuthorityLifetime_s / kDay_s, options.lifetime_s);
  const int64_t authority_end = last_second(*certificate_);
  if (now_unix_s > authority_end)
    return fail(Code::denied,
                "the authority of cluster {} itself expired on {}; move its folder "
                "away, so that a new one is made, and issue all certificates anew",
                cluster_, utc_text(authority_end));

  const Identity identity{cluster_, options.role, options.name};
  const Draft draft{"", options.name, now_unix_s - kClockSkew_s,
                    std::min(now_unix_s + options.lifetime_s - 1, authority_end)};
  TRY(X509Pointer leaf, draft_certificate(draft, key));
  const bool extended =
      add_extensions(*leaf, *certificate_,
                     {{NID_basic_constraints, "critical,CA:FALSE"},
                      {NID_key_usage, "critical,digitalSignature"},
                      {NID_ext_key_usage, "serverAuth,clientAuth"},  // agents are called and call
                      {NID_authority_key_identifier, "keyid:always"},
                      {NID_subject_alt_name, "critical,URI:" + identity_uri(identity)}});
  if (!extended) return openssl_failed("making a certificate");
  TRY_DO(sign_with(*leaf, *certificate_, *key_));
  return leaf.release();
}

Result<Certificate> Authority::issue(const IssueOptions& options, int64_t now_unix_s) const {
  TRY(KeyPointer key, make_key());
  TRY(x509_st* const leaf, certify(*key, options, now_unix_s));
  X509_up_ref(certificate_.get());
  return Certificate::make(key.release(), leaf, certificate_.get());
}

Result<std::string> Authority::sign(std::string_view request_pem, const IssueOptions& options,
                                    int64_t now_unix_s) const {
  if (request_pem.size() > kMaxSigningRequestBytes)
    return fail(Code::invalid, "a signing request has {} bytes at most", kMaxSigningRequestBytes);
  const BioPointer bio = read_bio(request_pem);
  const OpensslPointer<X509_REQ, X509_REQ_free> request(
      PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  EVP_PKEY* key = request ? X509_REQ_get0_pubkey(request.get()) : nullptr;
  const bool proven =
      key != nullptr && EVP_PKEY_is_a(key, "EC") == 1 && X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  if (!proven) return fail(Code::invalid, "the signing request is damaged, or of another's key");
  TRY(x509_st* const made, certify(*key, options, now_unix_s));
  const X509Pointer leaf(made);
  const BioPointer text = write_bio();
  TUTTI_ASSERT(PEM_write_bio_X509(text.get(), leaf.get()) == 1, "PEM of a certificate");
  return bio_text(*text);
}

}  // namespace tutti::wire
