// Errors as they travel: code, message and the chain of what was being done, all bounded.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti::wire {

std::string encode_failure(const Error& error);
// The error that travelled. The outer error is Code::corrupt when the bytes are none.
Result<Error> decode_failure(Bytes payload);

// For who asked something of one that everybody knows: what that one refused, in its words alone.
// How the call came there and back is left out; where that failed it is all there is to know, and
// stays.
Error as_said(const Error& error);

}  // namespace tutti::wire
