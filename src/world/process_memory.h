// Large pieces of memory of this process alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "world/disk.h"

namespace tutti {

class ProcessMemory {
 public:
  virtual ~ProcessMemory() = default;
  // Aligned to 64 bytes or more; as long as what is returned lives. Code::exhausted.
  virtual Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) = 0;
  // Has the kernel give pages to a part of it now, which else come when they are first used.
  // Changes nothing in them, and may be called by any thread while others use them.
  virtual void populate(MutableBytes part) = 0;
  // What the machine could still give; nothing if it does not say.
  virtual std::optional<uint64_t> available_bytes() = 0;
};

}  // namespace tutti
