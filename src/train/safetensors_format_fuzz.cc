// Any bytes are a safetensors file or refused; what is accepted is the same after it was written.
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "train/safetensors_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tutti::Bytes file{reinterpret_cast<const std::byte*>(data), size};
  const auto header = tutti::decode_safetensors_header(file, size, "fuzz");
  if (!header) return 0;
  const std::string text = tutti::encode_safetensors_header(*header);
  const uint64_t whole = text.size() + (size - header->data_begin);
  const auto again = tutti::decode_safetensors_header(tutti::as_bytes(text), whole, "again");
  TUTTI_ASSERT(again.has_value(), "what was written reads back");
  // Names that are no UTF-8 are refused by the parser, so none changes on its way.
  TUTTI_ASSERT(again->tensors == header->tensors, "the same tensors");
  TUTTI_ASSERT(again->metadata == header->metadata, "the same words");
  return 0;
}
