// Small files of this user that can be made again at any time: $XDG_CACHE_HOME/tutti, or
// ~/.cache/tutti. Blocking, for programs that are about to start something.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tutti {

// Nothing where there is none, or no such folder can be had.
std::optional<std::string> cache_folder();

// Code::not_found when it is not there. `name` is a path below the folder.
Result<std::string> read_cache_file(const std::string& folder, std::string_view name,
                                    uint64_t most_bytes);
// Whole or not at all, for whoever reads it meanwhile; not synced.
Result<void> write_cache_file(const std::string& folder, std::string_view name,
                              std::string_view text);

// As the kernel calls it: "AMD EPYC 7763 64-Core Processor".
std::string processor_name();

}  // namespace tutti
