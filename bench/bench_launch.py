"""Launching a gang: from the command line to the exit of the last of n processes that do nothing.

Beside `mpirun` of Debian's Open MPI, `torchrun` of an empty script, and a bare posix_spawn loop in
a process that runs already ("limit": what the kernel takes for the same processes). A try that does
not end is killed, counted and made again: hangs are told beside the time, not in it.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from common import (
    Case,
    Missing,
    bench_program,
    build,
    compare,
    debian_peer,
    printed_number,
    progress,
    python_peer,
)

SIZES = (1, 4, 32)
TRUE = "/bin/true"
PATIENCE_S = 20
MPIRUN_PATIENCE_S = 5  # some forty times what it takes when it does not hang, which it often does
QUICK_PATIENCE_S = 3  # twenty times
MOST_TRIES = 20  # per round

# Sets of flags for mpirun on one machine; the fastest is the peer.
MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
MPIRUN_FLAGS = {
    "": [],
    "no remote shell": ["--mca", "plm", "isolated"],
    "no remote shell, no network": [
        *("--mca", "plm", "isolated"),
        *("--mca", "oob", "^ud"),
        *("--mca", "oob_tcp_if_include", "lo"),
    ],
}
TORCH = "torch==2.15.0"


class Hung(RuntimeError):
    """A command that hung in every try."""


class Launcher:
    """Runs one command line; counts the tries and how many of them hung."""

    def __init__(
        self, command: Sequence[str | Path], environment: dict[str, str] | None = None
    ) -> None:
        self.command = [str(word) for word in command]
        self.environment = environment  # None: ours
        self.patience_s: float = PATIENCE_S
        self.most_tries = MOST_TRIES
        self.tries = 0
        self.hangs = 0

    def begin(self) -> None:
        """Before every try."""

    def took_ms(self, wall_ms: float) -> float:
        """Of a try that ended well: what it took, if not from beginning to end."""
        return wall_ms

    def milliseconds(self) -> float:
        for _ in range(self.most_tries):
            self.tries += 1
            self.begin()
            start = time.perf_counter()
            process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code = process.wait(self.patience_s)
            except subprocess.TimeoutExpired:
                self.hangs += 1
                continue
            finally:
                if process.poll() is None:  # it hung, or we were interrupted
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if code != 0:
                raise RuntimeError(f"{' '.join(self.command)}: exit code {code}")
            return self.took_ms((time.perf_counter() - start) * 1e3)
        words = f"did not end within {self.patience_s:g} s, {self.most_tries} times in a row"
        raise Hung(f"{' '.join(self.command)}: {words}")

    def hung(self) -> str | None:
        return f"theirs hung in {self.hangs} of {self.tries} tries" if self.hangs else None


def best_mpirun(size: int, tries: int = 3) -> Callable[[int], Launcher] | Missing:
    """The flags that are fastest for so many processes, of those that do not hang every time."""
    missing = debian_peer("openmpi-bin")
    if missing:
        return missing

    def launcher(flags: Sequence[str], size: int) -> Launcher:
        mpirun = Launcher([*MPIRUN, *flags, "-np", str(size), TRUE])
        mpirun.patience_s = MPIRUN_PATIENCE_S
        return mpirun

    times: dict[str, float] = {}
    for name, flags in MPIRUN_FLAGS.items():
        one = launcher(flags, size)
        one.patience_s = QUICK_PATIENCE_S
        one.most_tries = 4
        try:
            times[name] = min(one.milliseconds() for _ in range(tries))
        except RuntimeError:
            continue
    if not times:
        return Missing("mpirun does not work here, or hangs every time")
    best = min(times, key=lambda name: times[name])
    progress(f"mpirun is fastest with: {best or 'no more flags'}")
    return lambda size: launcher(MPIRUN_FLAGS[best], size)


def against(case: str, peer: str, ours: Launcher, theirs: Launcher | Missing, rounds: int) -> Case:
    def measured(theirs: Callable[[], float] | Missing) -> Case:
        return compare(
            case=case,
            unit="ms",
            higher_is_better=False,
            rounds=rounds,
            ours=ours.milliseconds,
            peer=peer,
            theirs=theirs,
        )

    try:
        result = measured(theirs if isinstance(theirs, Missing) else theirs.milliseconds)
    except Hung as why:
        return measured(Missing(str(why)))
    note = None if isinstance(theirs, Missing) else theirs.hung()
    return result if note is None else replace(result, note=note)


def run(quick: bool) -> Iterator[Case]:
    tutti = build("tutti") / "tutti"
    rounds = 5 if quick else 21

    def ours(size: int, *command: str | Path) -> Launcher:
        return Launcher([tutti, "run", "-n", str(size), "--", *command])

    yield from against_limit(ours, rounds)
    mpirun = best_mpirun(4)
    for size in SIZES:
        theirs = mpirun if isinstance(mpirun, Missing) else mpirun(size)
        yield against(f"{size} x true", "mpirun", ours(size, TRUE), theirs, rounds)
    yield from against_torchrun(ours, 2 if quick else 5)


def against_limit(ours: Callable[..., Launcher], rounds: int) -> Iterator[Case]:
    bare = bench_program("launch")
    for size in SIZES:
        yield compare(
            case=f"{size} x true",
            unit="ms",
            higher_is_better=False,
            rounds=rounds,
            ours=ours(size, TRUE).milliseconds,
            peer="limit",
            theirs=lambda size=size: printed_number(bare, str(size), TRUE),
            note="posix_spawn in a loop, by a process that runs already",
        )


def against_torchrun(ours: Callable[..., Launcher], rounds: int) -> Iterator[Case]:
    """Its script is empty; ours is once the same, with the same Python, and once no Python."""
    python = python_peer("torch", TORCH)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text("")
        interpreter = Path("/usr/bin/python3") if isinstance(python, Missing) else python
        for size in SIZES:
            command = [interpreter.parent / "torchrun", "--nproc-per-node", str(size), script]
            for name, mine in {"true": [TRUE], "an empty script": [interpreter, script]}.items():
                theirs = python if isinstance(python, Missing) else Launcher(command)
                case = f"{size} x {name} (theirs: a script)"
                yield against(case, "torchrun", ours(size, *mine), theirs, rounds)
