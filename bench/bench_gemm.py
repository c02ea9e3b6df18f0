"""Matrix products of two GPTs, forward and backward, beside OpenBLAS, torch (MKL) and the limit.

Small: 4096 tokens of width 384, 65 words. Large: 512 tokens of width 768, 50,304 words. For every
weight W: forward X·W, the gradient of X, dY·Wᵀ, and that of W, Xᵀ·dY. Two threads. The sides are
processes that take turns of a few hundredths of a second; none spins while another is measured. The
limit is what the processor does with multiply-adds in registers alone, in the same turns.
`python bench/bench_gemm.py 1` has one thread, and processor time, for machines that are not idle.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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
QUIET_S = 0.03  # until the threads of the side before have gone to sleep
SMALL = (4096, [(384, 1152), (384, 384), (384, 1536), (1536, 384), (384, 65)])
LARGE = (512, [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50304)])


class Side:
    """A process that multiplies on demand."""

    def __init__(self, *command: str | Path) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def products() -> Iterator[tuple[str, str]]:
    """Names, and what a side is asked: m, n, k, whether A and B are transposed, milliseconds."""
    for tokens, weights in (SMALL, LARGE):
        for inputs, outputs in weights:
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


def run(quick: bool, threads: int = 2) -> Iterator[Case]:
    program = bench_program("gemm")
    commands: dict[str, tuple[str | Path, ...]] = {
        "ours": (program, "ours", str(threads)),
        "limit": (program, "peak", str(threads)),
    }
    missing: dict[str, Missing] = {}
    openblas = debian_peer("libopenblas0-pthread")
    if isinstance(openblas, Missing):
        missing["OpenBLAS"] = openblas
    else:
        commands["OpenBLAS"] = (program, "openblas", str(threads))
    torch = TORCH.replace("==", " ")
    python = python_peer("torch", TORCH)
    if isinstance(python, Missing):
        missing[torch] = python
    else:
        script = Path(__file__).with_name("peers") / "torch_mm.py"
        commands[torch] = (python, "-W", "ignore", script, str(threads))
    sides = {name: Side(*command) for name, command in commands.items()}
    for case, request in products():
        progress(case)
        results = measure(sides, request, 3 if quick else 9)
        ours = results.pop("ours")
        for peer, theirs in results.items():
            yield beside(case, ours, peer, theirs)
        for peer, why in missing.items():
            yield Case(
                case, "GFLOP/s", statistics.median(ours), peer, None, None, spread_of(ours), why.why
            )
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
