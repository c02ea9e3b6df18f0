#include "train/safetensors_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"

namespace tutti {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kAlignment = 64;  // of the data, so that vectors may be read where they lie
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array<std::string_view, kDTypes> kNames = {
    "F32", "F64", "BF16", "F16", "I8", "U8", "I32", "I64", "U32", "BOOL", "I16", "U16", "U64"};

std::optional<DType> type_named(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i)
    if (kNames[static_cast<size_t>(i)] == name) return static_cast<DType>(i);
  return std::nullopt;
}

// Reads one file's header; errors say where.
class Decoder {
 public:
  Decoder(std::string_view path, uint64_t data_bytes) : path_(path), data_bytes_(data_bytes) {}

  Result<SafetensorsHeader> decode(const Json& json) {
    if (!json.is_object())
      return fail(Code::corrupt, "{}: its header is {}, not an object", path_,
                  json_type_name(json));
    SafetensorsHeader header;
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadata) {
        TRY_DO(read_metadata(value, header));
        continue;
      }
      auto entry = read_entry(value);
      if (!entry)
        return fail(Code::corrupt, "{}: tensor '{}': {}", path_, name, entry.error().message());
      header.tensors.emplace(name, *std::move(entry));
    }
    TRY_DO(check_cover(header));
    return header;
  }

 private:
  Result<void> read_metadata(const Json& value, SafetensorsHeader& header) const {
    if (!value.is_object())
      return fail(Code::corrupt, "{}: {} is {}, not an object", path_, kMetadata,
                  json_type_name(value));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return fail(Code::corrupt, "{}: {}['{}'] is {}, not a string", path_, kMetadata, key,
                    json_type_name(text));
      header.metadata.emplace(key, text.get<std::string>());
    }
    return {};
  }

  Result<SafetensorsEntry> read_entry(const Json& value) const {
    if (!value.is_object())
      return fail(Code::corrupt, "it is {}, not an object", json_type_name(value));
    TRY(const std::string dtype, json_get<std::string>(value, "dtype"));
    const auto known = type_named(dtype);
    if (!known)
      return fail(Code::unsupported, "its dtype is '{}'; known are {}", dtype,
                  fmt::join(kNames, ", "));
    TRY(const Json shape, json_get<Json>(value, "shape"));
    TRY(const Json offsets, json_get<Json>(value, "data_offsets"));
    SafetensorsEntry entry{.dtype = *known};
    TRY(entry.shape, numbers(shape, "shape"));
    TRY(const std::vector<uint64_t> range, numbers(offsets, "data_offsets"));
    if (range.size() != 2 || range[0] > range[1])
      return fail(Code::corrupt, "its data_offsets are {}, not [begin, end]", dump_json(offsets));
    entry.begin = range[0];
    entry.end = range[1];
    if (entry.end > data_bytes_)
      return fail(Code::corrupt,
                  "its bytes end at {} but the file has only {} of data: it was cut short, copy or "
                  "save it again",
                  entry.end, data_bytes_);
    return check_size(std::move(entry));
  }

  static Result<std::vector<uint64_t>> numbers(const Json& value, std::string_view key) {
    if (!value.is_array() || value.size() > kMostSafetensorsDimensions)
      return fail(Code::corrupt, "its {} must be a list of at most {} numbers", key,
                  kMostSafetensorsDimensions);
    std::vector<uint64_t> all;
    for (const Json& number : value) {
      if (!number.is_number_unsigned())
        return fail(Code::corrupt, "its {} has {} in it, not a whole number", key,
                    dump_json(number));
      all.push_back(number.get<uint64_t>());
    }
    return all;
  }

  static Result<SafetensorsEntry> check_size(SafetensorsEntry entry) {
    uint64_t bytes = dtype_bytes(entry.dtype);
    bool fits = true;
    for (const uint64_t size : entry.shape)
      fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    if (!fits || bytes != entry.end - entry.begin)
      return fail(Code::corrupt, "{} of shape [{}] do not take the {} bytes it has",
                  kNames[static_cast<size_t>(entry.dtype)], fmt::join(entry.shape, ", "),
                  entry.end - entry.begin);
    return entry;
  }

  // Tensors lie side by side: neither over each other, nor with gaps.
  Result<void> check_cover(const SafetensorsHeader& header) const {
    std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
    for (const auto& [name, entry] : header.tensors) order.emplace_back(&name, &entry);
    std::ranges::sort(order, [](const auto& a, const auto& b) {
      return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
    });
    uint64_t end = 0;
    for (const auto& [name, entry] : order) {
      if (entry->begin != end)
        return fail(Code::corrupt, "{}: tensor '{}' begins at {} where {} was expected: {}", path_,
                    *name, entry->begin, end,
                    entry->begin < end ? "it lies over another one" : "there is a gap before it");
      end = entry->end;
    }
    if (end != data_bytes_)
      return fail(Code::corrupt, "{}: {} bytes after its last tensor belong to none", path_,
                  data_bytes_ - end);
    return {};
  }

  std::string_view path_;
  uint64_t data_bytes_;
};

}  // namespace

std::string encode_safetensors_header(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[std::string(kMetadata)] = header.metadata;
  for (const auto& [name, entry] : header.tensors)
    json[name] = {{"dtype", kNames[static_cast<size_t>(entry.dtype)]},
                  {"shape", entry.shape},
                  {"data_offsets", {entry.begin, entry.end}}};
  std::string text = dump_json(json);
  while ((kLengthBytes + text.size()) % kAlignment != 0) text += ' ';
  std::string whole(kLengthBytes, '\0');
  store_le(as_mutable_bytes(whole).data(), static_cast<uint64_t>(text.size()));
  return whole + text;
}

Result<uint64_t> safetensors_header_bytes(Bytes start, uint64_t file_bytes, std::string_view path) {
  if (file_bytes < kLengthBytes || start.size() < kLengthBytes)
    return fail(Code::corrupt, "{} has {} bytes, too few for a safetensors file", path, file_bytes);
  const auto length = load_le<uint64_t>(start.data());
  if (length > kMostSafetensorsHeader)
    return fail(Code::corrupt, "{} says that its header has {} bytes: it is no safetensors file",
                path, length);
  if (length > file_bytes - kLengthBytes)
    return fail(Code::corrupt,
                "{} ends within its header ({} of {} bytes): it was cut short, copy or save it "
                "again",
                path, file_bytes - kLengthBytes, length);
  return kLengthBytes + length;
}

Result<SafetensorsHeader> decode_safetensors_header(Bytes start, uint64_t file_bytes,
                                                    std::string_view path) {
  TRY(const uint64_t data_begin, safetensors_header_bytes(start, file_bytes, path));
  const std::string_view text =
      as_text(start.subspan(kLengthBytes, static_cast<size_t>(data_begin - kLengthBytes)));
  const auto json = parse_json(text, path);
  if (!json)
    return fail(Code::corrupt, "its header is no JSON: {}: it is no safetensors file, or damaged",
                json.error().message());
  TRY(SafetensorsHeader header, Decoder(path, file_bytes - data_begin).decode(*json));
  header.data_begin = data_begin;
  return header;
}

}  // namespace tutti
