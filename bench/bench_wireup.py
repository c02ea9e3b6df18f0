"""Wire-up: from started processes to their first barrier, from a command to the first all-reduce.

"barrier": processes in C++ that have all been started pass a gate together; the time is from the
first through it to the last past the gang's first barrier. MPI_Init and a barrier under mpirun
beside the fabric under tutti run.

"all-reduce": Python scripts; the time is from the command to the last rank's first sum. torchrun
with init_process_group("gloo") beside tutti run with tutti.fabric.join(), both with every import.

A try that does not end is killed, counted and made again: hangs are told beside the time.
"""

import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_launch import MPIRUN, MPIRUN_FLAGS, TORCH, Launcher, against
from common import ROOT, Case, Missing, bench_program, build, debian_peer, progress, python_peer

RANKS = 32
QUICK_RANKS = 8
QUICK_PYTHON_RANKS = 4  # 32 take torchrun a minute
GATE_BYTES = 64 + 16 * 1024  # as gate.h has it
PATIENCE_S = 180
QUICK_PATIENCE_S = 30  # of torchrun; of mpirun a third
PEERS = Path(__file__).with_name("peers")


class Gated(Launcher):
    """Runs ranks that pass a gate; the time is from the first through it to the last that ended."""

    def __init__(self, command: Sequence[str | Path], ranks: int, folder: Path) -> None:
        self.gate = folder / "gate"
        super().__init__([*command, self.gate, str(ranks)])
        self.ranks = ranks

    def begin(self) -> None:
        self.gate.unlink(missing_ok=True)  # who hung in an earlier try has it still
        self.gate.write_bytes(bytes(GATE_BYTES))

    def took_ms(self, wall_ms: float) -> float:
        with self.gate.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as gate:
            times = [struct.unpack_from("qq", gate, 64 + 16 * rank) for rank in range(self.ranks)]
        if any(ended == 0 for _, ended in times):
            raise RuntimeError(f"{' '.join(self.command)}: not all ranks came to their barrier")
        return (max(ended for _, ended in times) - min(began for began, _ in times)) / 1e6


class FirstSum(Launcher):
    """Runs scripts that write when they had their first sum into a file for each rank."""

    def __init__(
        self, command: list[str | Path], ranks: int, folder: Path, environment: dict[str, str]
    ) -> None:
        super().__init__([*command, folder], os.environ | environment)
        self.folder = folder
        self.ranks = ranks

    def begin(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        self.began_ns = time.monotonic_ns()

    def took_ms(self, wall_ms: float) -> float:
        ended = [int(file.read_text()) for file in self.folder.iterdir()]
        if len(ended) != self.ranks:
            raise RuntimeError(f"{' '.join(self.command)}: {len(ended)} of {self.ranks} ranks told")
        return (max(ended) - self.began_ns) / 1e6


def build_mpi(folder: Path) -> Path | Missing:
    missing = debian_peer("openmpi-bin", "libopenmpi-dev")
    if missing:
        return missing
    program = folder / "mpi_wireup"
    subprocess.run(["mpicc", "-O2", "-o", program, PEERS / "mpi_wireup.c"], check=True)
    return program


def best_mpi(program: Path, ranks: int, folder: Path, patience_s: float) -> Gated | Missing:
    """The flags with which MPI_Init and a barrier are fastest, of those that do not always hang."""
    yields = ["--mca", "mpi_yield_when_idle", "1"]
    tried: dict[str, tuple[float, Gated]] = {}
    for name, flags in MPIRUN_FLAGS.items():
        words = [*MPIRUN, *yields, *flags, "-np", str(ranks), program]
        one = Gated(words, ranks, folder)
        one.patience_s, one.most_tries = patience_s, 2
        try:
            tried[name] = (one.milliseconds(), one)
        except RuntimeError as why:
            progress(f"mpirun with {name or 'no more flags'}: {why}")
    if not tried:
        return Missing("mpirun does not work here, or hangs every time")
    best = min(tried, key=lambda name: tried[name][0])
    progress(f"MPI_Init is fastest with: {best or 'no more flags'}")
    return tried[best][1]


def barrier(ranks: int, rounds: int, patience_s: float, folder: Path) -> Iterator[Case]:
    tutti = build("tutti") / "tutti"
    program = bench_program("wireup")
    words = [tutti, "run", "-n", str(ranks), "--", program]
    ours = Gated(words, ranks, folder)
    mpi = build_mpi(folder)
    theirs = mpi if isinstance(mpi, Missing) else best_mpi(mpi, ranks, folder, patience_s)
    case = f"barrier, {ranks} started ranks"
    yield against(case, "Open MPI: MPI_Init, barrier", ours, theirs, rounds)


def first_sum(
    ranks: int, rounds: int, patience_s: float, tries: int, folder: Path
) -> Iterator[Case]:
    tutti = build("tutti", "_core") / "tutti"
    mine = [tutti, "run", "-n", str(ranks), "--", sys.executable, ROOT / "bench/wireup_worker.py"]
    environment = {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    ours = FirstSum(mine, ranks, folder / "ours", environment)
    python = python_peer("torch", TORCH)
    theirs: FirstSum | Missing
    if isinstance(python, Missing):
        theirs = python
    else:
        command = [python.parent / "torchrun", "--nproc-per-node", str(ranks)]
        command += ["--standalone", PEERS / "gloo_wireup.py"]
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        theirs = FirstSum(command, ranks, folder / "theirs", own)
        theirs.patience_s, theirs.most_tries = patience_s, tries
    case = f"first all-reduce, {ranks} Python ranks"
    yield against(case, "torchrun, Gloo", ours, theirs, rounds)


def run(quick: bool) -> Iterator[Case]:
    patience_s = QUICK_PATIENCE_S if quick else PATIENCE_S
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks, rounds = (QUICK_RANKS, 2) if quick else (RANKS, 9)
        yield from barrier(ranks, rounds, patience_s / 3, folder)
        ranks, rounds = (QUICK_PYTHON_RANKS, 1) if quick else (RANKS, 3)
        yield from first_sum(ranks, rounds, patience_s, 1 if quick else 2, folder)
