"""Matrix products of two GPTs, forward and backward, beside OpenBLAS, torch and the limit.

Small: 4096 tokens of width 384, 65 words. Large: 512 tokens of width 768, 50,304 words. For every
weight W: forward X·W, the gradient of X, dY·Wᵀ, and that of W, Xᵀ·dY. Two threads. The sides are
processes that take turns of a few hundredths of a second; none spins while another is measured. The
limit is what the processor does with multiply-adds in registers alone, in the same turns. A peer
is the fastest of the ways that bench/best.py has for it; torch multiplies with MKL and with oneDNN.
`python bench/bench_gemm.py 1` has one thread, and processor time, for machines that are not idle.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from best import Environment, ways_of_openblas, ways_of_torch
from common import (
    Case,
    Missing,
    bench_program,
    debian_peer,
    progress,
    python_peer,
    spread_of,
)

TORCH = "torch==2.15.0"
TURN_MS = 40
QUICK_WORDS = 10_000  # --quick leaves out more: such operands take long to make
TRIALS = (f"4096 1536 384 0 0 {TURN_MS}", f"512 3072 768 0 0 {TURN_MS}")
OWN = {"ours": "ours", "limit": "peak"}  # sides of bench/gemm.cc
# oneDNN's results are new ones each time: on memory that is there already.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
QUIET_S = 0.03  # until the threads of the side before have gone to sleep
SMALL = (4096, [(384, 1152), (384, 384), (384, 1536), (1536, 384), (384, 65)])
LARGE = (512, [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50304)])


class Side:
    """A process that multiplies on demand."""

    def __init__(self, *command: str | Path, env: Environment | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )

    def gflops(self, request: str) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        time.sleep(QUIET_S)
        if not answer:
            raise RuntimeError(f"{self.process.args} ended while it multiplied {request}")
        return float(answer)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def products(quick: bool = False) -> Iterator[tuple[str, str]]:
    """Names, and what a side is asked: m, n, k, whether A and B are transposed, milliseconds."""
    for tokens, weights in (SMALL, LARGE):
        for inputs, outputs in weights:
            if quick and outputs > QUICK_WORDS:
                continue
            name = f"{tokens} tokens, {inputs} to {outputs}"
            yield f"{name}, Y", f"{tokens} {outputs} {inputs} 0 0 {TURN_MS}"
            yield f"{name}, dX", f"{tokens} {inputs} {outputs} 0 1 {TURN_MS}"
            yield f"{name}, dW", f"{inputs} {outputs} {tokens} 1 0 {TURN_MS}"


def measure(sides: dict[str, Side], request: str, rounds: int) -> dict[str, list[float]]:
    results: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        for name in order:
            results[name].append(sides[name].gflops(request))
        order = order[1:] + order[:1]
    return results


def fastest(
    command: tuple[str | Path, ...], ways: dict[str, Environment]
) -> tuple[str, Side | Missing]:
    """Of the ways to start a peer, by a product of each model."""
    speeds: dict[str, float] = {}
    sides = {name: Side(*command, env=env) for name, env in ways.items()}
    for name, side in sides.items():
        progress(f"trying {name}")
        speeds[name] = sum(max(side.gflops(each) for _ in range(3)) for each in TRIALS)
    best = max(speeds, key=lambda name: speeds[name])
    for name, side in sides.items():
        if name != best:
            side.end()
    return best, sides[best]


def peers(program: Path, threads: int) -> Iterator[tuple[str, Side | Missing]]:
    openblas = debian_peer("libopenblas0-pthread")
    if openblas is None:
        yield fastest((program, "openblas", str(threads)), ways_of_openblas())
    else:
        yield "OpenBLAS", openblas
    torch = TORCH.replace("==", " ")
    python = python_peer("torch", TORCH)
    if isinstance(python, Missing):
        yield torch, python
        return
    script = Path(__file__).with_name("peers") / "torch_mm.py"
    command = (python, "-W", "ignore", script, str(threads))
    yield fastest((*command, "mm"), ways_of_torch(torch))
    yield f"{torch}, oneDNN", Side(*command, "onednn", env=KEEPING)


def run(quick: bool, threads: int = 2) -> Iterator[Case]:
    program = bench_program("gemm")
    sides = {name: Side(program, side, str(threads)) for name, side in OWN.items()}
    missing: dict[str, Missing] = {}
    for name, peer in peers(program, threads):
        if isinstance(peer, Missing):
            missing[name] = peer
        else:
            sides[name] = peer
    for case, request in products(quick):
        progress(case)
        results = measure(sides, request, 3 if quick else 9)
        ours = results.pop("ours")
        for peer_name, theirs in results.items():
            yield beside(case, ours, peer_name, theirs)
        for peer_name, why in missing.items():
            mine = statistics.median(ours)
            yield Case(case, "GFLOP/s", mine, peer_name, None, None, spread_of(ours), why.why)
    for side in sides.values():
        side.end()


def beside(case: str, ours: list[float], peer: str, theirs: list[float]) -> Case:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Case(
        case,
        "GFLOP/s",
        statistics.median(ours),
        peer,
        statistics.median(theirs),
        statistics.median(ratios),
        spread_of(ratios),
    )


if __name__ == "__main__":
    for case in run(quick=True, threads=int(sys.argv[1]) if len(sys.argv) > 1 else 2):
        print(json.dumps(case.as_json("gemm"), ensure_ascii=False))
