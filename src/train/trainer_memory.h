// Where a trainer's tensors live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
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
  // As long as this lives; what was given before is given back.
  virtual Result<std::byte*> scratch(uint64_t bytes) = 0;
  // Has the kernel give scratch its pages now, which else come when they are first used. Changes
  // nothing in them, and may be called while others use them.
  virtual void touch_scratch(MutableBytes) {}
  // What the machine could still give; nothing if it does not say.
  virtual std::optional<uint64_t> available_bytes() = 0;
};

// States in a rank's vault, which outlives the process; scratch elsewhere.
class VaultMemory final : public TrainerMemory {
 public:
  VaultMemory(Vault& vault, TrainerMemory& scratch) : vault_(vault), scratch_(scratch) {}
  Result<StateTensor> state(const std::string& name, const Type& type) override;
  Result<std::byte*> scratch(uint64_t bytes) override { return scratch_.scratch(bytes); }
  void touch_scratch(MutableBytes bytes) override { scratch_.touch_scratch(bytes); }
  std::optional<uint64_t> available_bytes() override { return scratch_.available_bytes(); }

 private:
  Vault& vault_;
  TrainerMemory& scratch_;
};

}  // namespace tutti
