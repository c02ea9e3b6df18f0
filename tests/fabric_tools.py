"""What the tests of the fabric share: programs of ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

from run_tools import TUTTI, Marked
from run_tools import tutti as run_tutti

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}

PRELUDE = """\
import numpy as np, os, signal, sys, time, tutti
fabric = tutti.fabric.join(60)
world, rank, size = fabric.world, fabric.rank, fabric.size
"""

EVERY_COLLECTIVE = """
own = np.arange(3, dtype=np.int64) + 10 * rank
out = np.empty(3 * size, np.int64)
world.all_gather(own, out)
assert out.tolist() == [i + 10 * r for r in range(size) for i in range(3)]
assert world.broadcast(own.copy(), root=1).tolist() == [10, 11, 12]
part = np.empty(1, np.int64)
world.reduce_scatter(np.arange(size, dtype=np.int64), part)
assert part[0] == rank * size
swapped = np.empty(size, np.int64)
world.all_to_all(np.arange(size, dtype=np.int64) + 100 * rank, swapped)
assert swapped.tolist() == [rank + 100 * r for r in range(size)]
uneven = np.empty(size * rank, np.float64)
world.all_to_all(np.full(sum(range(size)), rank, float), uneven, range(size), [rank] * size)
assert uneven.tolist() == [r for r in range(size) for _ in range(rank)]
gathered = world.gather(own, out if rank == 2 else None, root=2)
assert rank != 2 or gathered.tolist() == [i + 10 * r for r in range(size) for i in range(3)]
world.scatter(np.arange(size, dtype=np.int64) if rank == 0 else None, part)
assert part[0] == rank
world.shift(own, got := np.empty_like(own), distance=1)
assert got[0] == 10 * ((rank - 1) % size)
total = world.shared((5,), "f64")
world.all_reduce(np.full(5, 1.0), out=total, shared=True)
assert (total == size).all()
evens = [r for r in range(size) if r % 2 == 0]
group = fabric.group(evens if rank % 2 == 0 else [r for r in range(size) if r % 2])
value = np.array([rank], np.int32)
assert group.all_reduce(value, op="max")[0] == group.ranks[-1]
ones = [np.ones(n, np.float32) for n in (1, 9000, 70000)]
pending = [world.all_reduce(each, op="mean", wait=False) for each in ones]
assert all((p.wait() == 1).all() for p in pending)
for count in (1, 300000):
    mine, theirs = np.full(count, rank), np.empty(count, np.int64)
    sent = fabric.send(mine, (rank + 1) % size, tag=count, wait=False)
    fabric.receive(theirs, (rank - 1) % size, tag=count)
    sent.wait()
    assert (theirs == (rank - 1) % size).all()
table = fabric.empty((50, 40), "i32")
table[...] = np.arange(2000).reshape(50, 40) + 10000 * rank
columns = world.regions(table[:, 7])
assert columns[rank].rank == rank and columns[rank].shape == (50,)
assert (fabric.get(columns[size - 1]) == np.arange(7, 2000, 40) + 10000 * (size - 1)).all()
rows = world.regions(table[3])
fabric.put(np.full(40, rank, np.int32), rows[(rank + 1) % size])
fabric.notify((rank + 1) % size, tag=5, wait=False)
fabric.await_notice((rank - 1) % size, tag=5)
assert (table[3] == (rank - 1) % size).all()
world.barrier()
print("well")
"""


def ranks(count: int, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + script, *words]
    return run_tutti("--local", "-n", str(count), "--", *command, env=ENVIRONMENT)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def example(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples/mlp_numpy.py"), *words]


def start_example(gang: Marked, folder: Path, steps: str, spares: int = 1) -> subprocess.Popen[str]:
    """As a job of four workers, whose processes have the gang's mark."""
    job = (ROOT / "examples/jobs/mlp.toml").read_text()
    job = job.replace("spares = 1", f"spares = {spares}")
    job = job.replace('["python", "examples/mlp_numpy.py"]', str(example("--steps", steps)))
    (folder / "mlp.toml").write_text(job.replace("'", '"'))
    environment = ENVIRONMENT | gang.environment | {"TUTTI_HOME": str(folder / "home")}
    return subprocess.Popen(
        [TUTTI, "run", folder / "mlp.toml"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def digests_of(output: str) -> set[str]:
    return set(re.findall(r"digest (\w+)", output))
