"""Plans for the state of a 70-billion-parameter model, and reshards of 4 GiB by four processes.

A plan goes from the shapes of 723 tensors (fp32 master weights and two moments) on 512 ranks to all
copies of 384 ranks, or of one. Its limit is a second. The peer is the resharding of
torch.distributed.checkpoint, given the boxes of both sides: what one rank of it plans before it
loads. A reshard stands beside as many concurrent memcpys of as many bytes, over the same memory, in
turn; all buffers are rewritten before each.
"""

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from common import (
    Case,
    Missing,
    bench_program,
    compare,
    printed_number,
    progress,
    python_peer,
    spread_of,
)

GIB = 1 << 30
TORCH = "torch==2.15.0"
PLANS = {
    "fsdp": "fsdp",
    "fsdp_tp": "fsdp x tp 8",
    "hsdp": "8 x fsdp 64 to 4 x fsdp 96",
}
MOVES = {
    "rows_to_columns": "rows to columns",
    "columns_to_rows": "columns to rows",
    "fsdp_to_fsdp_tp": "fsdp to fsdp x tp",
    "rows_to_other_ranks": "rows to other ranks",
}


def run(quick: bool) -> Iterator[Case]:
    program = bench_program("reshard")
    yield from plans(program, quick)
    size = GIB if quick else 4 * GIB
    for what, text in MOVES.items():
        progress(f"{text}, {size // GIB} GiB")
        yield beside_memcpy(program, what, f"{text}, {size // GIB} GiB", size, 1 if quick else 3)


def plans(program: Path, quick: bool) -> Iterator[Case]:
    for what, text in PLANS.items():
        yield compare(
            case=f"plan, {text}, all 384 ranks", unit="s", higher_is_better=False,
            rounds=1 if quick else 9, ours=lambda what=what: printed_number(program, "plan", what),
            peer="limit", theirs=1.0,
        )  # fmt: skip
    python = python_peer("torch", TORCH)
    script = Path(__file__).with_name("peers") / "dcp_plan.py"
    for what, text in PLANS.items():
        progress(f"plan, {text}, one rank")

        def theirs(what: str = what) -> float:
            assert isinstance(python, Path)
            return printed_number(python, "-W", "ignore", script, what, "100")

        yield compare(
            case=f"plan, {text}, one rank", unit="s", higher_is_better=False,
            rounds=1 if quick else 5,
            ours=lambda what=what: printed_number(program, "plan", what, "100"),
            peer=TORCH.replace("==", " "), theirs=python if isinstance(python, Missing) else theirs,
        )  # fmt: skip


def beside_memcpy(program: Path, what: str, case: str, size: int, rounds: int) -> Case:
    pairs = []
    for _ in range(rounds):
        command = [program, "move", what, str(size)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        ours_s, memcpy_s = map(float, done.stdout.split())
        pairs.append((size / ours_s / 1e9, size / memcpy_s / 1e9))
    ratios = [ours / theirs for ours, theirs in pairs]
    return Case(
        case,
        "GB/s",
        statistics.median(ours for ours, _ in pairs),
        "limit",
        statistics.median(theirs for _, theirs in pairs),
        statistics.median(ratios),
        spread_of(ratios),
        "4 concurrent memcpys",
    )


if __name__ == "__main__":
    for case in run(quick=True):
        print(json.dumps(case.as_json("reshard"), ensure_ascii=False))
