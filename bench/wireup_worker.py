"""A rank of the wire-up benchmark: joins, all-reduces once, and leaves when that was done."""

import sys
import time
from pathlib import Path

import numpy as np
import tutti

fabric = tutti.fabric.join(60)
data = np.full(1, 1.0, np.float32)
fabric.world.all_reduce(data)
ended_ns = time.monotonic_ns()
assert data[0] == fabric.size
(Path(sys.argv[1]) / str(fabric.rank)).write_text(str(ended_ns))
