// Memory of large messages, kept by each thread for the next one. Taking megabytes from the kernel
// and giving them back with every message costs more than moving their bytes. Sizes are rounded up,
// by less than an eighth, so that messages of about the same size can use each other's.
#pragma once

#include <cstddef>
#include <memory>

#include "base/units.h"

namespace tutti::wire {

// Smaller ones are the allocator's business.
constexpr size_t kLargeBuffer = 64_KiB;
// What a thread keeps at most.
constexpr size_t kMostKept = 16_MiB;

// Uninitialised; its last owner gives it back, on whatever thread.
std::shared_ptr<std::byte[]> take_large_buffer(size_t size);

// What this thread keeps now.
size_t kept_large_bytes();

}  // namespace tutti::wire
