// On Linux a Handle is a file descriptor.
#pragma once

#include "world/handle.h"

namespace tutti {

// A Handle that owns the descriptor: close(2) when it dies.
Handle own_fd(int fd);

}  // namespace tutti
