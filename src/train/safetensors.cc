#include "train/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/assert.h"
#include "base/hash.h"
#include "base/suggest.h"

namespace tutti {
namespace {

constexpr const char* kHashKey = "tutti_xxh3";  // of all data, as 32 digits

SafetensorsHeader header_of(const std::vector<SafeTensor>& tensors,
                            std::map<std::string, std::string> metadata) {
  SafetensorsHeader header{.metadata = std::move(metadata)};
  uint64_t at = 0;
  for (const SafeTensor& tensor : tensors) {
    const uint64_t end = at + tensor.data.size();
    const bool added =
        header.tensors
            .emplace(tensor.name,
                     SafetensorsEntry{
                         .dtype = tensor.dtype, .shape = tensor.shape, .begin = at, .end = end})
            .second;
    TUTTI_ASSERT(added, "two tensors of one name");
    at = end;
  }
  return header;
}

std::string hash_of(const std::vector<SafeTensor>& tensors) {
  Hasher hasher;
  for (const SafeTensor& tensor : tensors) hasher.update(tensor.data);
  return hasher.digest128().hex();
}

// Files of others have none.
Result<void> check_hash(SafetensorsHeader& header, Bytes data, const std::string& path) {
  const auto found = header.metadata.find(kHashKey);
  if (found == header.metadata.end()) return {};
  if (hash128(data).hex() != found->second)
    return fail(Code::corrupt,
                "{}: its data are not what was saved: a disk or a copy changed them; use another "
                "copy, or an older file",
                path);
  header.metadata.erase(found);
  return {};
}

std::string shape_text(DType dtype, const std::vector<uint64_t>& shape) {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

}  // namespace

Task<Result<void>> write_safetensors(Disk& disk, std::string path, std::vector<SafeTensor> tensors,
                                     std::map<std::string, std::string> metadata) {
  // The largest numbers first: then all lie at multiples of their size.
  std::ranges::stable_sort(tensors, [](const SafeTensor& a, const SafeTensor& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  metadata[kHashKey] = hash_of(tensors);
  const std::string head = encode_safetensors_header(header_of(tensors, std::move(metadata)));
  std::vector<Bytes> parts = {as_bytes(head)};
  for (const SafeTensor& tensor : tensors) parts.push_back(tensor.data);
  co_return co_await write_file_atomically(disk, path, parts);
}

Result<Bytes> SafetensorsFile::tensor(std::string_view name, DType dtype,
                                      const std::vector<uint64_t>& shape) const {
  const auto found = header_.tensors.find(std::string(name));
  if (found == header_.tensors.end()) {
    std::vector<std::string_view> names;
    for (const auto& [known, entry] : header_.tensors) names.push_back(known);
    const auto near = suggest(name, names);
    return fail(Code::not_found, "{} has no tensor '{}'{}: it is of another model, or incomplete",
                path_, name, near ? fmt::format(" (but '{}')", *near) : "");
  }
  const SafetensorsEntry& entry = found->second;
  if (entry.dtype != dtype || entry.shape != shape)
    return fail(Code::invalid,
                "{}: tensor '{}' is {}, the model has {}: give the configuration it "
                "was saved with",
                path_, name, shape_text(entry.dtype, entry.shape), shape_text(dtype, shape));
  return Bytes(mapping_->bytes())
      .subspan(header_.data_begin + entry.begin, entry.end - entry.begin);
}

Task<Result<std::unique_ptr<SafetensorsFile>>> open_safetensors(Disk& disk, std::string path) {
  CO_TRY(auto file, co_await disk.open(path, OpenOptions{}));
  CO_TRY(const uint64_t size, co_await file->size());
  auto opened = std::make_unique<SafetensorsFile>();
  opened->path_ = path;
  if (size == 0) co_return fail(Code::corrupt, "{} is empty: no safetensors file", path);
  CO_TRY(opened->mapping_, file->map(0, size, false));
  const Bytes bytes = opened->mapping_->bytes();
  CO_TRY(opened->header_, decode_safetensors_header(bytes, size, path));
  CO_TRY_DO(check_hash(opened->header_, bytes.subspan(opened->header_.data_begin), path));
  co_return opened;
}

}  // namespace tutti
