"""A rank of the abort benchmark: collectives of random sizes until it is told to end; tells as JSON
lines when it joined an epoch, and when and why it left one.
"""

import json
import os
import sys
import time

import numpy as np
import tutti

fabric = tutti.fabric.join(60)
data = fabric.zeros(4 << 20)


def tell(what: str, **more) -> None:
    line = {"what": what, "rank": fabric.rank, "pid": os.getpid(), "epoch": fabric.epoch, **more}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


tell("joined")
while not os.path.exists(sys.argv[1]):  # noqa: PTH110
    sizes = np.random.default_rng(fabric.epoch).integers(1, len(data), 1000)
    try:
        for size in sizes:
            fabric.world.all_reduce(data[:size])
    except tutti.fabric.PeerLost as lost:
        at_ns = time.monotonic_ns()
        tell("lost", ranks=lost.ranks, at_ns=at_ns)
        fabric.rejoin()
        tell("joined")
