#include "wire/openssl.h"

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

}  // namespace tutti::wire
