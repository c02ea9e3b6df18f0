// TLS 1.3 with certificates on both sides: the Seal of TCP connections.
//
// A TlsContext holds our certificate and what both ends agree on; many seals share it, and one
// thread uses it at a time. A seal made from it lives on its own: replacing the context (a renewed
// certificate) does not touch connections that exist.
//
// Post-handshake, a seal's buffers are OpenSSL's: one record in each direction, given back when
// empty, so that an idle connection holds no buffers.
#pragma once

#include <memory>
#include <string>

#include "wire/certificates.h"
#include "wire/rules.h"
#include "wire/seal.h"
#include "world/clock.h"

struct ssl_ctx_st;

namespace tutti::wire {

// TLS cuts what we say into records of at most this size.
constexpr size_t kTlsRecordBytes = 16 << 10;
// An honest handshake takes about 1.5 KiB each way; a peer that sends more has something in mind.
constexpr size_t kMaxHandshakeBytes = 32 << 10;
// RFC 8446 allows 2^24.5 records under one AES-GCM key; we change keys well before.
constexpr uint64_t kRecordsPerKey = 1 << 23;

class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> make(const Certificate& certificate);
  // For connecting without a certificate, to whom the authority with this public key vouches for.
  static Result<std::shared_ptr<const TlsContext>> make_guest(std::string authority_key);

  ssl_ctx_st* get() const { return context_.get(); }
  const Claim& claim() const { return claim_; }
  // Of a guest; else empty.
  const std::string& authority_key() const { return authority_key_; }

 private:
  TlsContext(Claim claim, std::string authority_key, ssl_ctx_st* context);
  Claim claim_;
  std::string authority_key_;
  std::shared_ptr<ssl_ctx_st> context_;
};

struct TlsOptions {
  Side side = Side::connecting;
  Expectation expected;
  uint64_t records_per_key = kRecordsPerKey;
};

// The clock tells whether certificates hold; it must outlive the seal.
std::unique_ptr<Seal> make_tls_seal(std::shared_ptr<const TlsContext> context, const Clock& clock,
                                    TlsOptions options);

}  // namespace tutti::wire
