// Bytes that are mostly zeros, packed: the pieces that are not, each with its place.
//
//   u32 size of all; then u32 offset, u32 bytes, the bytes; …
//
// Pieces are whole lines of 64 bytes, in order, but for the last.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti {

// Memory that others may be writing: it is read until two looks agree, or a few times.
std::string pack_sparse(const std::byte* shared, size_t bytes);
// Code::corrupt for anything else, or for more than `most` bytes.
Result<std::string> unpack_sparse(Bytes packed, size_t most);

}  // namespace tutti
