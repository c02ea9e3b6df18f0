// Assertions for what cannot happen. They stay on in release builds: a runtime that keeps going
// with a broken invariant loses more than the run it is in.
#pragma once

namespace tutti {

// Prints `file:line: assertion failed: condition: why` to standard error and aborts.
[[noreturn]] void assertion_failed(const char* file, int line, const char* condition,
                                   const char* why);

}  // namespace tutti

#define TUTTI_ASSERT(condition, why)                                  \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::tutti::assertion_failed(__FILE__, __LINE__, #condition, why); \
  } while (false)
