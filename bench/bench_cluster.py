"""A warm cluster: starting a gang on it, and running many small jobs at once.

`tutti up` with 32 slots, in a home of its own, beside `mpirun`, `torchrun` and a Slurm tuned for
small jobs on the same machine (peers/slurm.py). Many jobs are also held against a bare loop that
keeps as many posix_spawned processes in flight ("limit": what the kernel takes for the processes
alone). Ours are durable: each submission, placement and end is synced by the head, each start and
end by the agent, before it is told.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cluster_spares
from bench_launch import (
    QUICK_PATIENCE_S,
    TORCH,
    TRUE,
    Launcher,
    against,
    best_mpirun,
)
from common import (
    Case,
    Missing,
    bench_program,
    build,
    compare,
    printed_number,
    progress,
    python_peer,
)
from peers import slurm

SLOTS = 32
JOBS = 1000  # of ours, and of the bare loop
SLURM_JOBS = 100
PATIENCE_S = 300

# Sets of flags for srun; the fastest is the peer.
SRUN_FLAGS = {
    "": [],
    "no MPI": ["--mpi=none"],
    "no MPI, no output": ["--mpi=none", "--input=none", "--output=none", "--error=none"],
}


@contextmanager
def warm_cluster(tutti: Path) -> Iterator[dict[str, str]]:
    """The environment of a cluster that has run something already; gone after the block."""
    home = tempfile.mkdtemp(prefix="tt", dir="/tmp")  # short: sockets live in it
    environment = os.environ | {"TUTTI_HOME": home}
    try:
        _quiet([tutti, "up", "--slots", str(SLOTS)], environment)
        _quiet([tutti, "submit", "--array", f"1-{2 * SLOTS}", "--wait", "--", TRUE], environment)
        yield environment
    finally:
        _quiet([tutti, "down"], environment)
        shutil.rmtree(home, ignore_errors=True)


def _quiet(command: Sequence[str | Path], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise RuntimeError(f"{words}: exit code {done.returncode}: {done.stderr.strip()}")


def jobs_per_s(tutti: Path, environment: dict[str, str], count: int) -> float:
    start = time.perf_counter()
    _quiet([tutti, "submit", "--array", f"1-{count}", "--wait", "--", TRUE], environment)
    return count / (time.perf_counter() - start)


class Sbatch:
    """Jobs of Slurm, from the first submission until nothing is left to do."""

    POLL_S = 0.05  # asking more often would take time from what is measured

    def __init__(self, controller: slurm.Slurm, count: int, as_array: bool) -> None:
        self.slurm = controller
        self.count = count
        self.as_array = as_array

    def jobs_per_s(self) -> float:
        self._wait()
        command = ["sbatch", "--output=/dev/null", "--error=/dev/null", f"--wrap={TRUE}"]
        start = time.perf_counter()
        if self.as_array:
            self.slurm.output_of(*command, f"--array=1-{self.count}")
        else:
            for _ in range(self.count):
                self.slurm.output_of(*command)
        self._wait()
        return self.count / (time.perf_counter() - start)

    def _wait(self) -> None:
        self.slurm.wait_until_idle(PATIENCE_S, self.POLL_S)


class Srun(Launcher):
    """One gang; waits before each try until the one before has left its processors."""

    def __init__(self, controller: slurm.Slurm, flags: Sequence[str]) -> None:
        super().__init__(["srun", *flags, "-n", str(SLOTS), TRUE], controller.environment)
        self.slurm = controller

    def milliseconds(self) -> float:
        self.slurm.wait_until_idle(PATIENCE_S, pause_s=0.02)
        return super().milliseconds()


def best_srun(controller: slurm.Slurm) -> Srun:
    candidates = {name: Srun(controller, flags) for name, flags in SRUN_FLAGS.items()}
    times = {name: min(srun.milliseconds() for _ in range(3)) for name, srun in candidates.items()}
    best = min(times, key=lambda name: times[name])
    progress(f"srun is fastest with: {best or 'no more flags'}")
    return candidates[best]


def run(quick: bool) -> Iterator[Case]:
    tutti = build("tutti") / "tutti"
    with warm_cluster(tutti) as environment:
        yield from gangs(tutti, environment, quick)
        yield from many_jobs(tutti, environment, quick)
        with slurm.running(SLOTS) as controller:
            yield from against_slurm(tutti, environment, controller, quick)
    yield from cluster_spares.cases(quick)


def ours(tutti: Path, environment: dict[str, str], *command: str | Path) -> Launcher:
    return Launcher([tutti, "run", "--cluster", "-n", str(SLOTS), "--", *command], environment)


def gangs(tutti: Path, environment: dict[str, str], quick: bool) -> Iterator[Case]:
    case = f"{SLOTS} x true, warm cluster"
    mpirun = best_mpirun(SLOTS, tries=1 if quick else 3)
    theirs = mpirun if isinstance(mpirun, Missing) else mpirun(SLOTS)
    if quick and isinstance(theirs, Launcher):
        theirs.patience_s, theirs.most_tries = QUICK_PATIENCE_S, 4
    mine = ours(tutti, environment, TRUE)
    yield against(case, "mpirun", mine, theirs, 3 if quick else 21)

    python = python_peer("torch", TORCH)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text("")
        torchrun: Launcher | Missing
        if isinstance(python, Missing):
            torchrun = python
        else:
            command = [python.parent / "torchrun", "--nproc-per-node", str(SLOTS), script]
            torchrun = Launcher(command)
        case += " (theirs: an empty script)"
        yield against(case, "torchrun", mine, torchrun, 1 if quick else 5)


def many_jobs(tutti: Path, environment: dict[str, str], quick: bool) -> Iterator[Case]:
    bare = bench_program("spawn_loop")
    yield compare(
        case=f"{JOBS} jobs at once, {SLOTS} at a time",
        unit="jobs/s",
        higher_is_better=True,
        rounds=3 if quick else 11,
        ours=lambda: jobs_per_s(tutti, environment, JOBS),
        peer="limit",
        theirs=lambda: printed_number(bare, str(JOBS), str(SLOTS), TRUE),
        note="posix_spawn in a loop, nothing kept",
    )


def against_slurm(
    tutti: Path, environment: dict[str, str], controller: slurm.Slurm | Missing, quick: bool
) -> Iterator[Case]:
    mine = ours(tutti, environment, TRUE)
    srun = controller if isinstance(controller, Missing) else best_srun(controller)
    yield against(f"{SLOTS} x true, warm cluster", "srun", mine, srun, 3 if quick else 11)
    count = SLURM_JOBS // 4 if quick else SLURM_JOBS
    for peer, as_array in {"sbatch --array": True, "sbatch": False}.items():
        theirs: Sbatch | Missing
        if isinstance(controller, Missing):
            theirs = controller
        else:
            theirs = Sbatch(controller, count, as_array)
        yield compare(
            case=f"{JOBS} jobs at once, {SLOTS} at a time",
            unit="jobs/s",
            higher_is_better=True,
            rounds=1 if quick else 5,
            ours=lambda: jobs_per_s(tutti, environment, JOBS),
            peer=peer,
            theirs=theirs if isinstance(theirs, Missing) else theirs.jobs_per_s,
            note=f"theirs: the rate of {count}",
        )
