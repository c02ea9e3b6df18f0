#include "wire/tls_errors.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <algorithm>

#include "wire/openssl.h"
#include "wire/tls.h"

namespace tutti::wire {

namespace {

constexpr std::byte kHandshakeRecord{22};
constexpr std::byte kAlertRecord{21};
constexpr size_t kShownBytes = 16;

// The first bytes, with everything that could upset a terminal as dots.
std::string shown(Bytes bytes) {
  std::string text(as_text(bytes.first(std::min(bytes.size(), kShownBytes))));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '.';
  }
  return text;
}

bool looks_like_http(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  return text.starts_with("GET ") || text.starts_with("POST ") || text.starts_with("HEAD ") ||
         text.starts_with("PUT ") || text.starts_with("HTTP/");
}

Error not_tls(Bytes received, Side side) {
  const std::string begins =
      fmt::format("the other side does not speak TLS, it begins with '{}'", shown(received));
  if (looks_like_http(received))
    return {Code::denied, begins + "; that is HTTP: did you mean the dashboard's port?"};
  if (side == Side::accepting)
    return {Code::denied, begins +
                              "; a TCP connection needs a certificate: did you mean to connect "
                              "to the unix: address?"};
  return {Code::denied, begins + "; did you mean another port?"};
}

// What the other side's alert says about us; tls_verify.cc chose them.
std::optional<Refusal> refusal_of_alert(int alert) {
  switch (alert) {
    case SSL_AD_UNKNOWN_CA: return Refusal::unknown_authority;
    case SSL_AD_CERTIFICATE_EXPIRED: return Refusal::expired;
    case SSL_AD_BAD_CERTIFICATE: return Refusal::not_yet_valid;
    case SSL_AD_UNSUPPORTED_CERTIFICATE: return Refusal::role;
    case SSL_AD_HANDSHAKE_FAILURE: return Refusal::name;
    default: return {};
  }
}

Error no_shared_cipher() {
  return {Code::unsupported,
          "the other side has no cipher of ours (AES-128-GCM, X25519, ECDSA P-256); it is not a "
          "Tutti program"};
}

Error told_by_alert(int alert, const Claim& ours, const TlsMoment& moment) {
  // OpenSSL says this of its own where the two have nothing in common.
  if (alert == SSL_AD_HANDSHAKE_FAILURE && !moment.certificate_shown) return no_shared_cipher();
  if (const auto refusal = refusal_of_alert(alert))
    return refused_by_peer(*refusal, ours, moment.now_unix_s);
  const char* name = SSL_alert_desc_string_long(alert);
  switch (alert) {
    case SSL_AD_PROTOCOL_VERSION:
      return {Code::unsupported, "the other side does not speak TLS 1.3; update it"};
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return {Code::denied, fmt::format("the other side finds our certificate ({}) unfit; its log "
                                        "says why",
                                        identity_text(ours.identity))};
    case SSL_AD_CERTIFICATE_REQUIRED:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_ACCESS_DENIED:
      return {Code::denied, fmt::format("the other side refused our certificate ({}): {}",
                                        identity_text(ours.identity), name)};
    default:
      return {Code::corrupt, fmt::format("the other side gave up: TLS alert {} ({}); bytes were "
                                         "damaged on the way, or it is not a Tutti program",
                                         alert, name)};
  }
}

}  // namespace

Error tls_error(int kind, unsigned long cause, const Claim& ours, const TlsMoment& moment) {
  if (kind == SSL_ERROR_ZERO_RETURN)
    return {Code::unavailable, "the other side closed the connection"};
  const int reason = ERR_GET_REASON(cause);
  if (ERR_GET_LIB(cause) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET)
    return told_by_alert(reason - SSL_AD_REASON_OFFSET, ours, moment);
  switch (ERR_GET_LIB(cause) == ERR_LIB_SSL ? reason : 0) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {Code::denied, fmt::format("the other side has no certificate; give it one of cluster "
                                        "{}, from the host that holds its authority",
                                        ours.identity.cluster)};
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return {Code::unsupported, "the other side speaks only TLS older than 1.3; update it"};
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM: return no_shared_cipher();
    default: break;
  }
  const char* words = cause == 0 ? nullptr : ERR_reason_error_string(cause);
  return {Code::corrupt,
          fmt::format("the bytes the {} sent do not pass TLS's checks ({}); they were damaged or "
                      "forged on the way",
                      moment.side == Side::accepting ? "caller" : "other side",
                      words == nullptr ? "no details" : words)};
}

std::optional<Error> check_received(Bytes received, size_t before, Side side) {
  if (received.empty()) {
    if (before == 0)
      return Error(Code::unavailable, "the other side closed the connection without a word");
    return Error(Code::unavailable,
                 fmt::format("the other side closed the connection {} bytes into the TLS handshake",
                             before));
  }
  if (before == 0 && received[0] != kHandshakeRecord && received[0] != kAlertRecord)
    return not_tls(received, side);
  if (before + received.size() > kMaxHandshakeBytes)
    return Error(Code::denied, fmt::format("the other side sent {} bytes and no end of its TLS "
                                           "handshake in sight",
                                           before + received.size()));
  return {};
}

}  // namespace tutti::wire
