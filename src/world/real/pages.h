// Memory of this process alone, in large pages where the kernel has them; and how much there is.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti {

// Zeroed, aligned to 2 MiB. Pages are there once they are touched.
class Pages {
 public:
  static Result<Pages> make(uint64_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  MutableBytes bytes() const { return bytes_; }

 private:
  MutableBytes bytes_;   // what was asked for
  MutableBytes mapped_;  // with what it took to align it
};

// Has the kernel give pages to a part of somebody's, which else come when they are first touched;
// what is in them stays. Any thread may call it. Older kernels do nothing.
void populate_pages(MutableBytes part);

// What this process can still use without swapping, as the kernel and our cgroup see it. Nothing
// where neither says.
std::optional<uint64_t> available_memory_bytes();
// What this process uses, with its share of what it has in common with others (PSS).
std::optional<uint64_t> own_memory_bytes();

}  // namespace tutti
