// What every generated C file begins with: vectors of sixteen, whatever the registers' width, and
// functions on them.
#pragma once

namespace tutti {

extern const char* const kCPrelude;

}  // namespace tutti
