#include "train/vault.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tutti {

namespace {

constexpr uint64_t kMagic = 0x31544C5541565454;  // "TTVAULT1"
constexpr uint64_t kPage = 4096;
constexpr uint64_t kDirectoryBytes = 1 << 20;

constexpr uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// docs/fabric.md specifies both.
struct Vault::Header {
  uint64_t magic;
  uint64_t owner;
  std::atomic<uint64_t> count;  // entries that are whole
};

struct Vault::Entry {
  char name[kMostVaultName + 1];
  uint32_t type;
  uint32_t dimensions;
  uint64_t shape[kMostVaultDimensions];
  uint64_t offset;
  uint64_t bytes;
  uint64_t reserved[4];
};

Result<Vault> Vault::open(Parking& parking, MutableBytes memory, uint64_t owner) {
  static_assert(sizeof(Header) <= kPage && sizeof(Entry) == 216);
  static_assert(kPage + sizeof(Entry) * kMostVaultTensors <= kDirectoryBytes);
  if (memory.size() < kDirectoryBytes + kPage)
    return fail(Code::exhausted, "a vault takes more than {}", format_bytes(memory.size()));
  Vault vault(parking, memory);
  Header& header = vault.header();
  if (header.magic == kMagic && header.owner == owner) return vault;
  if (header.magic != 0) parking.discard(memory);
  TRY_DO(parking.populate(memory.first(kPage)));
  header.owner = owner;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  header.magic = kMagic;
  return vault;
}

Vault::Header& Vault::header() const { return *reinterpret_cast<Header*>(memory_.data()); }

Vault::Entry& Vault::entry(uint64_t index) const {
  return reinterpret_cast<Entry*>(memory_.data() + kPage)[index];
}

VaultTensor Vault::describe(const Entry& entry) const {
  return {.name = entry.name,
          .type = static_cast<DType>(entry.type),
          .shape = {entry.shape, entry.shape + entry.dimensions},
          .data = memory_.data() + entry.offset,
          .bytes = entry.bytes,
          .found = true};
}

std::optional<VaultTensor> Vault::find(std::string_view name) const {
  for (uint64_t i = 0; i < header().count.load(); ++i)
    if (entry(i).name == name) return describe(entry(i));
  return std::nullopt;
}

std::vector<VaultTensor> Vault::list() const {
  std::vector<VaultTensor> all;
  for (uint64_t i = 0; i < header().count.load(); ++i) all.push_back(describe(entry(i)));
  return all;
}

Result<VaultTensor> Vault::tensor(std::string_view name, DType type, std::vector<uint64_t> shape) {
  if (name.empty() || name.size() > kMostVaultName || name.find('\0') != std::string_view::npos)
    return fail(Code::invalid, "a tensor's name has 1 to {} bytes, not {}", kMostVaultName,
                name.size());
  if (shape.size() > kMostVaultDimensions)
    return fail(Code::invalid, "{} has {} dimensions; {} are the most", name, shape.size(),
                kMostVaultDimensions);
  if (auto known = find(name)) {
    if (known->type == type && known->shape == shape) return *std::move(known);
    return fail(Code::invalid, "the vault has {} as {} [{}], not {} [{}]", name,
                dtype_name(known->type), fmt::join(known->shape, ", "), dtype_name(type),
                fmt::join(shape, ", "));
  }
  const uint64_t count = header().count.load();
  if (count == kMostVaultTensors)
    return fail(Code::exhausted, "a vault has at most {} tensors", kMostVaultTensors);
  uint64_t bytes = dtype_bytes(type);
  for (const uint64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      return fail(Code::exhausted, "{} does not fit into any memory", name);
  const uint64_t offset = count == 0
                              ? kDirectoryBytes
                              : round_up(entry(count - 1).offset + entry(count - 1).bytes, kPage);
  if (bytes > memory_.size() || offset > memory_.size() - bytes)
    return fail(Code::exhausted, "{} of {} do not fit into what is left of the vault",
                format_bytes(bytes), name);
  // What a predecessor populated and did not live to count was never written.
  const uint64_t pages = std::min(round_up(bytes, kPage), memory_.size() - offset);
  if (pages != 0) TRY_DO(parking_->populate(memory_.subspan(offset, pages)));
  Entry& made = entry(count);
  std::memset(&made, 0, sizeof made);
  std::memcpy(made.name, name.data(), name.size());
  made.type = static_cast<uint32_t>(type);
  made.dimensions = static_cast<uint32_t>(shape.size());
  std::ranges::copy(shape, made.shape);
  made.offset = offset;
  made.bytes = bytes;
  header().count.store(count + 1, std::memory_order_release);
  VaultTensor tensor = describe(made);
  tensor.found = false;
  return tensor;
}

}  // namespace tutti
