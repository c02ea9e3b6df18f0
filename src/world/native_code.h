// Machine code made while we run, from C.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

// Functions stay as long as this lives.
class NativeCode {
 public:
  virtual ~NativeCode() = default;
  // Null when there is none of this name.
  virtual void* find(const std::string& name) const = 0;
};

class NativeCompiler {
 public:
  virtual ~NativeCompiler() = default;
  // Blocks until it is compiled, or found as compiled before. The error shows what the compiler
  // said, or how to get one.
  virtual Result<std::unique_ptr<NativeCode>> compile(std::string_view source) = 0;
};

}  // namespace tutti
