#include "train/trainer_memory.h"

namespace tutti {

Result<StateTensor> VaultMemory::state(const std::string& name, const Type& type) {
  std::vector<uint64_t> shape;
  for (const Dim& dim : type.dims) shape.push_back(static_cast<uint64_t>(dim.size));
  TRY(const VaultTensor tensor, vault_.tensor(name, type.dtype, std::move(shape)));
  return StateTensor{.data = tensor.data, .found = tensor.found};
}

}  // namespace tutti
