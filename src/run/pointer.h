// A place in a buffer that is known before the buffer is.
#pragma once

#include "run/launch.h"

namespace tutti {

struct Pointer {
  uint32_t buffer = 0;
  int64_t bytes = 0;

  Pointer() = default;
  explicit Pointer(const TensorRef& ref)
      : buffer(ref.buffer), bytes(ref.offset * element_bytes(ref.type.dtype)) {}
  std::byte* in(const LaunchCall& call) const { return call.buffers[buffer] + bytes; }
  template <class T>
  T* as(const LaunchCall& call) const {
    return reinterpret_cast<T*>(in(call));
  }
};

}  // namespace tutti
