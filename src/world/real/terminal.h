// Pseudo-terminals.
#pragma once

#include "world/processes.h"

namespace tutti {

// Our end does not block; theirs does, as programs expect.
Result<Processes::Terminal> open_terminal(unsigned columns, unsigned rows);

}  // namespace tutti
