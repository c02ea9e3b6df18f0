// The system's C compiler. What it has made is kept in the user's cache under the hash of the
// source, the compiler and this machine's instruction set, and loaded from there the next time, if
// not a byte of it has changed. Where nothing can be kept there is a warning, and it is made each
// time. For one thread.
#pragma once

#include "world/native_code.h"

namespace tutti {

struct NativeCompilerOptions {
  std::string command;  // $CC, or cc
  // Of the machine the code is for: "-mavx2 -mfma", as the processor has it, if empty.
  std::string instructions;
  std::string cache;  // a folder; the user's cache if empty
};

std::unique_ptr<NativeCompiler> make_native_compiler(NativeCompilerOptions options = {});

}  // namespace tutti
