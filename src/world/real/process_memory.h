// Memory of this process, in large pages where the kernel has them.
#pragma once

#include "world/process_memory.h"

namespace tutti {

class RealProcessMemory final : public ProcessMemory {
 public:
  Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) override;
  void populate(MutableBytes part) override;
  std::optional<uint64_t> available_bytes() override;
};

}  // namespace tutti
