#include "wire/openssl.h"

#include <openssl/core_names.h>
#include <openssl/err.h>

#include "base/assert.h"

namespace tutti::wire {

std::string take_openssl_errors() {
  const unsigned long first = ERR_peek_error();
  ERR_clear_error();
  const char* reason = first == 0 ? nullptr : ERR_reason_error_string(first);
  return reason == nullptr ? "no details" : reason;
}

BioPointer read_bio(std::string_view text) {
  BioPointer bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  TUTTI_ASSERT(bio != nullptr, "memory for a BIO");
  return bio;
}

BioPointer write_bio() {
  BioPointer bio(BIO_new(BIO_s_mem()));
  TUTTI_ASSERT(bio != nullptr, "memory for a BIO");
  return bio;
}

std::string bio_text(BIO& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  return {data, static_cast<size_t>(size)};
}

Result<KeyPointer> key_from(std::string_view public_key) {
  OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, const_cast<char*>("P-256"), 0),
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY,
                                        const_cast<char*>(public_key.data()), public_key.size()),
      OSSL_PARAM_construct_end()};
  const OpensslPointer<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(
      EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  if (!context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
    return fail(Code::invalid, "this is no public key: {}", take_openssl_errors());
  return KeyPointer(key);
}

}  // namespace tutti::wire
