"""A rank of the commit benchmark: applies made-up gradients in steps that are little but reducing
and committing, and tells as JSON lines when it joined an epoch, and what it came to.
"""

import json
import os
import sys

import numpy as np
import tutti

ELEMENTS = 1_000_000


def main() -> None:
    try:
        fabric = tutti.fabric.join(60)
    except tutti.fabric.Finished:
        return  # our predecessor was killed when all was done

    def tell(what: str, **more) -> None:
        line = {"what": what, "rank": fabric.rank, "pid": os.getpid(), "epoch": fabric.epoch}
        sys.stdout.write(json.dumps(line | more) + "\n")
        sys.stdout.flush()

    model = tutti.vault.Replica(fabric, {"w": (ELEMENTS,)}, learning_rate=1e-3)
    ramp = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    if not model.born:
        model.weights["w"][...] = ramp
        model.set_born()
    tell("joined")
    for step in model.steps(int(sys.argv[1])):
        np.multiply(ramp, np.float32(1 + step % 7 + fabric.rank), out=model.gradients["w"])
        if not model.take_step():
            tell("joined")
    tell("done", digest=f"{model.digest()}", step=model.step)


if __name__ == "__main__":
    main()
