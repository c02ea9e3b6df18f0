"""Collectives of this machine's processes, beside Open MPI's and Gloo's.

Every side rewrites its buffers before every call and tells the slowest rank's time, the median
over calls. Open MPI runs with the fastest of several settings at each size, found by a sweep; Gloo
through torch, with one thread for each rank. Rounds go on for a while and are five at most, so that
all of it takes ten minutes. "shared" is an all_reduce whose result lies once in
memory that all ranks see; peers have no such thing, so theirs is the usual one. "limit" is what
the memory can do: memcpy by as many processes at once, of as many bytes as a rank has to write, and
of all_reduce in place reading and writing as much as that must, 2pN bytes. Notes tell the ratio
that is wanted, where it is not 1.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common import Case, Missing, bench_program, debian_peer, progress, python_peer, spread_of

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB)
QUICK_SIZES = (4 * KIB, MIB, 16 * MIB)
MPI_ALGORITHMS = {
    "recursive doubling": "3",
    "ring": "4",
    "segmented ring": "5",
    "rabenseifner": "6",
}
TORCH = "torch==2.15.0"
ROUNDS_S = 8.0  # of one comparison, after its second round
WORTH = 1.5  # settings that were no slower than this at a smaller size are tried at a large one
LARGE = 64 * MIB
PATIENCE_S = 90  # mpirun hangs now and then

Times = dict[int, float]  # bytes to µs


def text_of(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def parse(output: str) -> Times:
    pairs = (line.split() for line in output.splitlines() if line[:1].isdigit())
    return {int(size): float(time) for size, time in pairs}


def run_program(command: list[str], env: dict[str, str] | None = None) -> Times:
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=env or os.environ,
    )
    return parse(done.stdout)


def build_mpi(folder: Path) -> Path | Missing:
    missing = debian_peer("openmpi-bin", "libopenmpi-dev")
    if missing:
        return missing
    program = folder / "mpi_collectives"
    source = Path(__file__).with_name("peers") / "mpi_collectives.c"
    subprocess.run(["mpicc", "-O3", "-march=native", "-o", program, source], check=True)
    return program


def mpi_settings(ranks: int, what: str, quick: bool) -> dict[str, list[str]]:
    """Flags worth trying; the fastest at each size is the peer."""
    bound = ["--bind-to", "core" if ranks <= (os.cpu_count() or 1) else "none"]
    usual = ["--oversubscribe", "--allow-run-as-root", *bound]
    if ranks > (os.cpu_count() or 1):
        usual += ["--mca", "mpi_yield_when_idle", "1"]
    found = {}
    for copy in ("cma", "none"):
        found[f"vader, {copy}"] = [*usual, "--mca", "btl_vader_single_copy_mechanism", copy]
    if quick:
        return found
    found["tcp"] = [*usual, "--mca", "btl", "self,tcp"]
    if what.startswith("all_reduce"):
        for name, number in MPI_ALGORITHMS.items():
            rules = ["--mca", "coll_tuned_use_dynamic_rules", "1"]
            rules += ["--mca", "coll_tuned_allreduce_algorithm", number]
            for copy in ("cma", "none"):
                found[f"vader, {copy}, {name}"] = [*found[f"vader, {copy}"], *rules]
    return found


def wanted(what: str, peer: str, ranks: int, size: int) -> float:
    """The ratio that we mean to reach."""
    if peer == "limit":
        return 0.8 if what != "all_reduce" else 0.85 if ranks == 2 else 0.0
    if size < MIB:
        return 1.0
    if what == "all_reduce_shared":
        return 4.0 if peer == "Open MPI" else 10.0
    if what == "all_reduce" and peer == "Open MPI":
        return 4.0 if size >= 256 * MIB else 2.0
    return 3.0 if what == "reduce_scatter" else 1.0


class Mpi:
    """Open MPI at its best: which settings win is found once for each size."""

    def __init__(
        self, program: Path, ranks: int, what: str, sizes: tuple[int, ...], quick: bool
    ) -> None:
        self.command = [str(program), what]
        self.ranks = ranks
        settings = mpi_settings(ranks, what, quick)
        self.settings = settings
        self.best: dict[int, str] = {}
        small = tuple(size for size in sizes if size < LARGE)
        large = tuple(size for size in sizes if size >= LARGE)
        tried = self._try(list(settings), small)
        names = list(tried or settings)
        if tried and large:
            fastest = min(times[small[-1]] for times in tried.values())
            names = [name for name in names if tried[name][small[-1]] <= WORTH * fastest]
        self._try(names, large)

    def _try(self, names: list[str], sizes: tuple[int, ...]) -> dict[str, Times]:
        """Notes which is fastest at each of these sizes."""
        if not sizes:
            return {}
        sweep = {"TUTTI_BENCH_SWEEP": "1"}
        tried = {name: self._run(self.settings[name], sizes, sweep) for name in names}
        tried = {name: times for name, times in tried.items() if times}
        for size in sizes if tried else ():
            self.best[size] = min(tried, key=lambda name: tried[name][size])
        return tried

    def _run(self, flags: list[str], sizes: tuple[int, ...], more: dict[str, str]) -> Times:
        words = ["mpirun", *flags, "-np", str(self.ranks), *self.command, *map(str, sizes)]
        try:
            return run_program(words, os.environ | more)
        except (subprocess.SubprocessError, OSError):
            return {}

    def times(self) -> Times:
        times: Times = {}
        for name in set(self.best.values()):
            sizes = tuple(size for size, best in self.best.items() if best == name)
            for _ in range(3):
                some = self._run(self.settings[name], sizes, {})
                if some:
                    break
            times |= some
        return times


def gloo(python: Path, ranks: int, what: str, sizes: tuple[int, ...]) -> Times:
    script = Path(__file__).with_name("peers") / "gloo_collectives.py"
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        words = [str(python), str(script), str(ranks), what, folder, *map(str, sizes)]
        return run_program(words, env)


def interleaved(
    what: str, ranks: int, sizes: tuple[int, ...], rounds: int, ours: Callable[[], Times],
    peer: str, theirs: Callable[[], Times], note: Callable[[int], str | None],
) -> Iterator[Case]:  # fmt: skip
    pairs: list[tuple[Times, Times]] = []
    began = time.monotonic()
    for turn in range(rounds):
        if turn >= 2 and time.monotonic() - began > ROUNDS_S:
            break
        first = ours() if turn % 2 == 0 else None
        other = theirs()
        pairs.append((first or ours(), other))
    for size in sizes:
        both = [(a[size], b[size]) for a, b in pairs if size in a and size in b]
        name = f"{what}, {ranks} processes, {text_of(size)}"
        if not both:
            yield Case(name, "µs", pairs[0][0][size], peer, None, None, 0.0, f"{peer} fails here")
            continue
        ratios = [theirs_us / ours_us for ours_us, theirs_us in both]
        yield Case(
            name,
            "µs",
            statistics.median(a for a, _ in both),
            peer,
            statistics.median(b for _, b in both),
            statistics.median(ratios),
            spread_of(ratios),
            _note(what, peer, ranks, size, note(size)),
        )


def _note(what: str, peer: str, ranks: int, size: int, more: str | None) -> str | None:
    least = wanted(what, peer, ranks, size)
    bar = f"wanted: {least:g}x" if least not in (0.0, 1.0) else None
    return "; ".join(part for part in (more, bar) if part) or None


def run(quick: bool) -> Iterator[Case]:
    program = str(bench_program("collectives"))
    sizes = QUICK_SIZES if quick else SIZES
    rounds = 1 if quick else 5
    counts = (2,) if quick else (2, 4, 8)
    python = python_peer("torch", TORCH)
    with tempfile.TemporaryDirectory() as folder:
        mpi_program = build_mpi(Path(folder))
        for ranks in counts:
            for what in ("all_reduce", "all_reduce_shared"):
                torch = None if quick and what != "all_reduce" else python
                yield from _beside_peers(program, what, ranks, sizes, rounds, mpi_program, torch)
        for what in ("reduce_scatter", "all_gather", "broadcast", "all_to_all"):
            for ranks in (2,) if quick else (2, 4):
                some = (MIB,) if quick else sizes[1:]
                yield from _beside_peers(program, what, ranks, some, rounds, mpi_program, None)


def _beside_peers(program, what, ranks, sizes, rounds, mpi_program, python) -> Iterator[Case]:
    def ours() -> Times:
        return run_program([program, str(ranks), what, *map(str, sizes)])

    nothing: Callable[[int], str | None] = lambda _: None  # noqa: E731
    progress(f"{what}, {ranks} processes")
    if isinstance(mpi_program, Missing):
        yield Case(what, "µs", ours()[sizes[0]], "Open MPI", None, None, 0.0, mpi_program.why)
    else:
        mpi = Mpi(mpi_program, ranks, what, sizes, rounds == 1)
        settings = mpi.best.get
        yield from interleaved(
            what, ranks, sizes, rounds, ours, "Open MPI", mpi.times, lambda size: settings(size)
        )
    if what.startswith("all_reduce") and python is not None:
        if isinstance(python, Missing):
            yield Case(what, "µs", ours()[sizes[0]], "Gloo", None, None, 0.0, python.why)
            return
        few = tuple(size for size in sizes if size <= 64 * MIB or rounds > 1)
        theirs = lambda: gloo(python, ranks, what, few)  # noqa: E731
        yield from interleaved(what, ranks, few, min(rounds, 3), ours, "Gloo", theirs, nothing)
    limits = {name: f"memcpy_{name}" for name in ("all_gather", "broadcast", "all_to_all")}
    limits["all_reduce"] = "read_write"
    if what in limits:
        some = tuple(size for size in sizes if what != "all_reduce" or size >= MIB)
        command = [program, str(ranks), limits[what], *map(str, some)]
        limit = lambda: run_program(command)  # noqa: E731
        yield from interleaved(what, ranks, some, rounds, ours, "limit", limit, nothing)


if __name__ == "__main__":
    for case in run(quick=True):
        print(json.dumps(case.as_json("collectives"), ensure_ascii=False))
