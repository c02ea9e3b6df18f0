// The header of a safetensors file: what is in it, and where.
// https://huggingface.co/docs/safetensors
//
// A file is the length of the header (u64), the header (JSON, padded with spaces), and the data:
// every byte of it belongs to exactly one tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"

namespace tutti {

constexpr uint64_t kMostSafetensorsHeader = 100'000'000;  // as the Python package has it
constexpr size_t kMostSafetensorsDimensions = 64;

struct SafetensorsEntry {
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // from the first byte of data
  uint64_t end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // from the first byte of the file
};

// With its length in front.
std::string encode_safetensors_header(const SafetensorsHeader& header);

// The length of the header with the length itself, from a file's first 8 bytes.
Result<uint64_t> safetensors_header_bytes(Bytes start, uint64_t file_bytes, std::string_view path);
// `start` has at least as many bytes. What is wrong is told with the file's and tensor's name.
Result<SafetensorsHeader> decode_safetensors_header(Bytes start, uint64_t file_bytes,
                                                    std::string_view path);

}  // namespace tutti
