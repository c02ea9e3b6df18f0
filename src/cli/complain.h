// How every verb says that it could not, and the exit codes for it.
#pragma once

#include <string_view>

#include "base/result.h"

namespace tutti::cli {

constexpr int kFailed = 1;
constexpr int kCalledWrongly = 2;

// "tutti VERB: what went wrong" on standard error; gives the code back.
int complain(std::string_view verb, const Error& error, int code = kFailed);

}  // namespace tutti::cli
