// Errors as they travel: code, message and the chain of what was being done, all bounded.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti::wire {

std::string encode_failure(const Error& error);
// The error that travelled. The outer error is Code::corrupt when the bytes are none.
Result<Error> decode_failure(Bytes payload);

}  // namespace tutti::wire
