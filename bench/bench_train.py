"""Training two GPTs in fp32, beside PyTorch (eager and compiled, fused AdamW) and JAX (jit).

Small: 6 layers, width 384, 6 heads, context 256, 65 words, 16 samples a step. Large: GPT-2 124M,
context 256, 2 samples. Two threads; no dropout, no bias, tied head, no clipping. All sides stay
loaded and take turns, a step or two at a time; of torch the faster one of what bench/best.py has,
by a step of each. "limit" is what the processor does with
multiply-adds in registers alone, in the same turns. Memory is the summed PSS of a side's processes
at its highest during two more steps, looked at all the while. What is wanted: 1.2 of the best peer
or 0.78 of the limit, and 1/0.6 and 1/0.8 of PyTorch's memory.
"""

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from best import Environment, ways_of_torch
from common import (
    Case,
    Missing,
    bench_program,
    build,
    progress,
    python_peer,
    spread_of,
)

HERE = Path(__file__).parent
TORCH = "torch==2.15.0"
JAX = "jax[cpu]==0.10.2"
THREADS = 2
LOOK_S = 0.02  # between two looks at memory
QUIET_S = 0.1  # until the threads of the side before have gone to sleep
# layers, width, heads, context, vocabulary, batch
MODELS = {"6 layers of 384": (6, 384, 6, 256, 65, 16), "GPT-2 124M": (12, 768, 12, 256, 50304, 2)}
PEAK_REQUEST = "512 512 512 0 0 400"


class Side:
    """A process that trains on demand."""

    def __init__(self, *command: str | Path, env: Environment | None = None) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | (env or {}),
        )
        self.first = self._answer()
        self.seconds: list[float] = []

    def _answer(self) -> list[float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.process.args)} failed")
        return [float(word) for word in line.split()]

    def _ask(self, request: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()

    def turn(self, request: str) -> float:
        self._ask(request)
        answer = self._answer()[0]
        time.sleep(QUIET_S)
        return answer

    def peak_mib(self, request: str) -> float:
        """The most memory that it and its children have during a turn."""
        self._ask(request)
        most = 0.0
        while not select.select([self.process.stdout], [], [], LOOK_S)[0]:
            most = max(most, self._pss_mib())
        self._answer()
        return most

    def _pss_mib(self) -> float:
        total, open_ = 0.0, [self.process.pid]
        while open_:
            pid = open_.pop()
            try:
                open_ += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue  # it ended meanwhile
            total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def peers(words: list[str], quick: bool) -> Iterator[tuple[str, Side | Missing]]:
    for name, requirement, script, modes in (
        (f"torch {TORCH.split('==')[1]}", TORCH, "torch_gpt.py", ("eager", "compile")),
        (f"jax {JAX.split('==')[1]}", JAX, "jax_gpt.py", ("jit",)),
    ):
        python = python_peer(requirement.split("=")[0].split("[")[0], requirement)
        for mode in modes:
            label = f"{name} {mode}"
            if isinstance(python, Missing):
                yield label, python
                continue
            if quick and mode == "compile":
                yield label, Missing("compiling takes too long for --quick")
                continue
            command = (python, "-W", "ignore", HERE / "peers" / script, mode, *words)
            ways = ways_of_torch(label) if "torch" in name else {label: {}}
            try:
                yield fastest(command, ways)
            except RuntimeError as error:
                yield label, Missing(str(error))


def fastest(command: tuple[str | Path, ...], ways: dict[str, Environment]) -> tuple[str, Side]:
    """Of the ways to start a peer, by a step of each."""
    best: tuple[float, str, Side] | None = None
    for label, env in ways.items():
        progress(f"{label}: first step")
        side = Side(*command, env=env)
        seconds = min(side.turn("1"), side.turn("1")) if len(ways) > 1 else 0.0
        if best is not None and best[0] < seconds:
            side.end()
            continue
        if best is not None:
            best[2].end()
        best = (seconds, label, side)
    assert best is not None
    return best[1:]


def compared(
    case: str, unit: str, ours: list[float], peer: str, theirs: list[float], *, less: bool
) -> Case:
    ratios = [
        (other / mine if less else mine / other) for mine, other in zip(ours, theirs, strict=True)
    ]
    return Case(
        case,
        unit,
        statistics.median(ours),
        peer,
        statistics.median(theirs),
        statistics.median(ratios),
        spread_of(ratios),
    )


def run_model(name: str, shape: tuple[int, ...], quick: bool) -> Iterator[Case]:
    rounds = 1 if quick else 7
    words = [str(word) for word in (THREADS, *shape)]
    tokens = shape[3] * shape[5]
    progress(f"{name}: our first step")
    ours = Side(sys.executable, HERE / "train_worker.py", *words)
    flops = ours.first[1]
    limit = subprocess.Popen(
        [bench_program("gemm"), "peak", str(THREADS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert limit.stdin is not None and limit.stdout is not None
    sides = dict(peers(words, quick))
    running = {label: side for label, side in sides.items() if isinstance(side, Side)}
    peaks: list[float] = []
    for number in range(rounds):
        progress(f"{name}: round {number + 1} of {rounds}")
        order = [ours, *running.values()]
        for side in order[number % len(order) :] + order[: number % len(order)]:
            side.seconds.append(side.turn("1"))
        limit.stdin.write(f"{PEAK_REQUEST}\n")
        limit.stdin.flush()
        peaks.append(float(limit.stdout.readline()))
    peak_mib = {side: side.peak_mib("2") for side in (ours, *running.values())}
    rates = [tokens / seconds for seconds in ours.seconds]
    for label, side in sides.items():
        if isinstance(side, Missing):
            yield Case(name, "tokens/s", statistics.median(rates), label, None, None, 0, side.why)
            continue
        theirs = [tokens / seconds for seconds in side.seconds]
        yield compared(name, "tokens/s", rates, label, theirs, less=False)
        yield compared(
            f"{name}, memory", "MiB", [peak_mib[ours]], label, [peak_mib[side]], less=True
        )
    reached = [flops / seconds / 1e9 for seconds in ours.seconds]
    yield compared(f"{name}, of FMA peak", "GFLOP/s", reached, "limit", peaks, less=False)
    for side in [ours, *running.values()]:
        side.end()
    limit.stdin.close()
    limit.wait()


def run(quick: bool) -> Iterator[Case]:
    build("_core")
    for name, shape in MODELS.items():
        yield from run_model(name, shape, quick)
        if quick:
            return
