// OpenSSL's objects as owning pointers, and its error queue as words. Only .cc files that speak to
// OpenSSL include this.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace tutti::wire {

template <auto kFree>
struct OpensslFree {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <class T, auto kFree>
using OpensslPointer = std::unique_ptr<T, OpensslFree<kFree>>;

using X509Pointer = OpensslPointer<X509, X509_free>;
using KeyPointer = OpensslPointer<EVP_PKEY, EVP_PKEY_free>;
using SslPointer = OpensslPointer<SSL, SSL_free>;
using SslContextPointer = OpensslPointer<SSL_CTX, SSL_CTX_free>;
using BioPointer = OpensslPointer<BIO, BIO_free_all>;

// Empties this thread's queue of OpenSSL errors; the earliest is the cause. "no details" if empty.
std::string take_openssl_errors();

// The key with these bytes (kPublicKeyBytes of them).
Result<KeyPointer> key_from(std::string_view public_key);

// Text in memory, to read PEM from; `text` must outlive it.
BioPointer read_bio(std::string_view text);
// Memory to write PEM into, and what was written.
BioPointer write_bio();
std::string bio_text(BIO& bio);

}  // namespace tutti::wire
