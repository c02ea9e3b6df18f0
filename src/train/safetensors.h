// Tensors in safetensors files. A file is written whole or not at all, and read where it lies.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/safetensors_format.h"
#include "world/disk.h"

namespace tutti {

struct SafeTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;
  Bytes data;  // in order, without gaps
};

// Replaces the file in one step that a crash cannot tear. The data must stay as they are until
// then. Their XXH3 goes along, as metadata, and is compared by who opens the file.
Task<Result<void>> write_safetensors(Disk& disk, std::string path, std::vector<SafeTensor> tensors,
                                     std::map<std::string, std::string> metadata);

// A file's tensors, mapped.
class SafetensorsFile {
 public:
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return header_.tensors; }
  // As good as the file lives. Code::not_found with the nearest name that is there;
  // Code::invalid when it is of another type or shape.
  Result<Bytes> tensor(std::string_view name, DType dtype,
                       const std::vector<uint64_t>& shape) const;

 private:
  friend Task<Result<std::unique_ptr<SafetensorsFile>>> open_safetensors(Disk& disk,
                                                                         std::string path);
  std::string path_;
  SafetensorsHeader header_;
  std::unique_ptr<Mapping> mapping_;
};

Task<Result<std::unique_ptr<SafetensorsFile>>> open_safetensors(Disk& disk, std::string path);

}  // namespace tutti
