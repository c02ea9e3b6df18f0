// A Stream over a descriptor that was inherited or received.
#pragma once

#include <memory>

#include "world/real/loop.h"
#include "world/stream.h"

namespace tutti {

Result<std::unique_ptr<Stream>> adopt_fd(Loop& loop, Handle fd);

}  // namespace tutti
