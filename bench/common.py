"""What every benchmark needs: fair rounds, honest numbers, and peers installed on first use.

A benchmark is a file bench/bench_<name>.py with one function:

    def run(quick: bool) -> Iterator[Case]:
        yield compare(case="hash 64 MiB", unit="GB/s", higher_is_better=True, rounds=9,
                      ours=measure_ours, peer="xxhash 4.1.0", theirs=measure_theirs)

where each measure_… runs once and gives one number. Rounds interleave the two sides, so that a
disturbance of the machine meets both.
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".bench"  # one virtual environment per peer

Measure = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """One line of a report. A ratio above 1 always means that we are better."""

    case: str
    unit: str
    ours: float
    peer: str  # "limit" when we are measured against what the machine can do at best
    theirs: float | None
    ratio: float | None
    spread: float
    note: str | None = None

    def as_json(self, bench: str) -> dict[str, object]:
        keys = {"bench": bench} | asdict(self)
        if self.note is None:
            del keys["note"]
        return keys


@dataclass(frozen=True)
class Missing:
    """A peer that cannot be had here, and why; its cases are reported without a ratio."""

    why: str


def compare(
    *,
    case: str,
    unit: str,
    ours: Measure,
    peer: str,
    theirs: Measure | float | Missing,
    higher_is_better: bool,
    rounds: int,
    note: str | None = None,
) -> Case:
    """Runs both sides `rounds` times, changing which goes first, and gives medians.

    The ratio is the median over rounds of ours against theirs in the same round; spread is the
    relative half-width of its interquartile range. Without a peer, spread is that of our numbers.
    `theirs` may be a number, for a limit that needs no measuring.
    """
    if rounds < 1:
        raise ValueError("a comparison needs at least one round")
    if isinstance(theirs, Missing):
        mine = [ours() for _ in range(rounds)]
        why = f"{note}; {theirs.why}" if note else theirs.why
        return Case(case, unit, statistics.median(mine), peer, None, None, spread_of(mine), why)

    fixed = theirs
    measure = theirs if callable(theirs) else lambda: float(fixed)  # type: ignore[arg-type]
    pairs = [_round(ours, measure, ours_first=i % 2 == 0) for i in range(rounds)]
    ratios = [a / b if higher_is_better else b / a for a, b in pairs]
    return Case(
        case,
        unit,
        statistics.median(a for a, _ in pairs),
        peer,
        statistics.median(b for _, b in pairs),
        statistics.median(ratios),
        spread_of(ratios),
        note,
    )


def _round(ours: Measure, theirs: Measure, *, ours_first: bool) -> tuple[float, float]:
    if ours_first:
        mine = ours()
        return mine, theirs()
    other = theirs()
    return ours(), other


def spread_of(values: Sequence[float]) -> float:
    """Half the interquartile range, relative to the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle


def build(*targets: str) -> Path:
    """Builds targets of the release preset, and gives the folder their programs are in."""
    subprocess.run([ROOT / "tools/build", "release", *targets], check=True)
    return ROOT / "build/release"


def bench_program(name: str) -> Path:
    """The program made of bench/<name>.cc."""
    return build(f"bench_{name}") / "bench" / f"bench_{name}"


def python_peer(name: str, *requirements: str) -> Path | Missing:
    """A Python that has these packages, in an environment of its own under .bench/."""
    folder = PEERS / name
    python = folder / "bin/python"
    stamp = folder / "installed"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    progress(f"installing {', '.join(requirements)} under .bench/{name}")
    shutil.rmtree(folder, ignore_errors=True)
    made = _quietly("/usr/bin/python3", "-m", "venv", folder)
    if not made or not _quietly(python, "-m", "pip", "install", *requirements):
        return Missing(f"pip cannot install {', '.join(requirements)} here")
    stamp.write_text(wanted)
    return python


def debian_peer(*packages: str) -> Missing | None:
    """Installs Debian packages that hold a peer."""
    if _quietly("dpkg-query", "-W", *packages):
        return None
    progress(f"installing Debian packages {' '.join(packages)}")
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*root, "apt-get", "install", "-y", "--no-install-recommends", *packages]
    update = [*root, "apt-get", "update"]
    if _quietly(*install) or (_quietly(*update) and _quietly(*install)):
        return None
    return Missing(f"apt-get cannot install {' '.join(packages)} here")


def printed_number(*command: str | Path, env: dict[str, str] | None = None) -> float:
    """Runs a program that prints one number on its last line."""
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | (env or {})
    )
    return float(done.stdout.split()[-1])


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _quietly(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
