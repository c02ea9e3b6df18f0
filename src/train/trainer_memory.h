// Where what is trained lives: weights and moments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "compile/type.h"
#include "train/vault.h"

namespace tutti {

struct StateTensor {
  std::byte* data = nullptr;
  bool found = false;  // somebody before us left it; else it is zero
};

class TrainerMemory {
 public:
  virtual ~TrainerMemory() = default;
  // Kept as long as this lives, or longer. Aligned to 64 bytes.
  virtual Result<StateTensor> state(const std::string& name, const Type& type) = 0;
  // Whether somebody after us finds it.
  virtual bool outlives_process() const = 0;
};

// In a rank's vault, which outlives the process.
class VaultMemory final : public TrainerMemory {
 public:
  explicit VaultMemory(Vault& vault) : vault_(vault) {}
  Result<StateTensor> state(const std::string& name, const Type& type) override;
  bool outlives_process() const override { return true; }

 private:
  Vault& vault_;
};

}  // namespace tutti
