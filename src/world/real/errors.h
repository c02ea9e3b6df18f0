// Errors of system calls, with what to do about them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

// "open /x: Permission denied; see ls -ld /x", with the code that fits the number.
inline Error errno_with_advice(int number, std::string_view doing, std::string_view advice) {
  const Error plain = Error::from_errno(number, doing);
  return {plain.code(), plain.message() + "; " + std::string(advice)};
}

}  // namespace tutti
