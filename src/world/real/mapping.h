// Maps a part of a descriptor: a file's, or an arena's.
#pragma once

#include <memory>
#include <string_view>

#include "world/disk.h"

namespace tutti {

// Shared with everyone who maps the same. The offset need not be that of a page. Refused when the
// part is empty or goes past the end: touching memory there would end the process.
Result<std::unique_ptr<Mapping>> map_fd(int fd, uint64_t offset, uint64_t size, bool writable,
                                        std::string_view what);

}  // namespace tutti
