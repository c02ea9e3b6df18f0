// State that outlives its process: named tensors in a rank's part of the heap, which its keeper
// holds. Whoever has the rank next finds them as they were at the last store of the one before.
//
// A tensor is there for good once its entry is counted, so a vault is whole whenever its writer is
// killed. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "fabric/dtype.h"
#include "world/parking.h"

namespace tutti {

constexpr uint32_t kMostVaultTensors = 4000;
constexpr size_t kMostVaultName = 95;
constexpr size_t kMostVaultDimensions = 8;

struct VaultTensor {
  std::string name;
  DType type = DType::f32;
  std::vector<uint64_t> shape;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  bool found = false;  // it was there; else it is new and zero
};

class Vault {
 public:
  // What belonged to another owner is discarded.
  static Result<Vault> open(Parking& parking, MutableBytes memory, uint64_t owner);

  // The tensor of that name, made if need be. Code::invalid when there is one of another type or
  // shape; Code::exhausted when it does not fit.
  Result<VaultTensor> tensor(std::string_view name, DType type, std::vector<uint64_t> shape);
  std::optional<VaultTensor> find(std::string_view name) const;
  std::vector<VaultTensor> list() const;

 private:
  struct Header;
  struct Entry;
  Vault(Parking& parking, MutableBytes memory) : parking_(&parking), memory_(memory) {}
  Header& header() const;
  Entry& entry(uint64_t index) const;
  VaultTensor describe(const Entry& entry) const;

  Parking* parking_;
  MutableBytes memory_;
};

}  // namespace tutti
