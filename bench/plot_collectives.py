"""Draws docs/images/collectives-*.svg: bandwidth of all_reduce over size, beside the peers.

    python bench/plot_collectives.py [--quick] [--to FOLDER]

One picture for each number of processes. Bandwidth is the size of the vector over the time of the
slowest rank, in the median over calls and then over rounds; rounds interleave all sides. Measures
as bench_collectives.py does, with Open MPI at its best of several settings for each size. It takes
ten minutes of a quiet machine; --quick takes a minute and is for looking at pictures.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench_collectives import (
    KIB,
    MIB,
    TORCH,
    Mpi,
    Times,
    build_mpi,
    gloo,
    run_program,
    text_of,
)
from chart import Line, chart
from common import ROOT, Missing, bench_program, progress, python_peer

SIZES = tuple(4 * KIB * 4**i for i in range(9))  # to 256 MiB
QUICK_SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)
ROUNDS = 3


def sides_of(
    program: str, ranks: int, sizes: tuple[int, ...], mpi: Path | Missing, torch: Path | Missing,
    quick: bool,
) -> dict[str, Callable[[], Times]]:  # fmt: skip
    def ours(what: str) -> Callable[[], Times]:
        return lambda: run_program([program, str(ranks), what, *map(str, sizes)])

    sides = {"ours, shared": ours("all_reduce_shared"), "ours, in place": ours("all_reduce")}
    for name, peer in {"Open MPI": mpi, "Gloo": torch}.items():
        if isinstance(peer, Missing):
            progress(f"no {name}: {peer.why}")
    if not isinstance(mpi, Missing):
        sides["Open MPI"] = Mpi(mpi, ranks, "all_reduce", sizes, quick).times
    if not isinstance(torch, Missing):
        sides["Gloo"] = lambda: gloo(torch, ranks, "all_reduce", sizes)
    return sides


def bandwidths(sides: dict[str, Callable[[], Times]], rounds: int) -> list[Line]:
    """GB/s by size, of each side."""
    told: dict[str, list[Times]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            progress(f"round {turn + 1} of {rounds}: {name}")
            told[name].append(sides[name]())
    lines = []
    for name, all_times in told.items():
        sizes = sorted({size for times in all_times for size in times})
        median = {s: statistics.median(t[s] for t in all_times if s in t) for s in sizes}
        lines.append(Line(name, [(size, size / median[size] / 1e3) for size in sizes]))
    return [line for line in lines if line.points]


def print_table(ranks: int, lines: list[Line]) -> None:
    print(f"\n{ranks} processes, GB/s\n\n| size | {' | '.join(line.name for line in lines)} |")
    print(f"|{'---|' * (len(lines) + 1)}")
    for size in sorted({x for line in lines for x, _ in line.points}):
        cells = [f"{dict(line.points)[size]:.3g}" if size in dict(line.points) else "-"
                 for line in lines]  # fmt: skip
        print(f"| {text_of(int(size))} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws bandwidth of all_reduce over size.")
    parser.add_argument("--quick", action="store_true", help="two processes, few sizes, one round")
    parser.add_argument("--to", type=Path, default=ROOT / "docs/images", help="where to draw")
    options = parser.parse_args()
    sizes = QUICK_SIZES if options.quick else SIZES
    program = str(bench_program("collectives"))
    torch = python_peer("torch", TORCH)
    with tempfile.TemporaryDirectory() as folder:
        mpi = build_mpi(Path(folder))
        for ranks in (2,) if options.quick else (2, 4, 8):
            sides = sides_of(program, ranks, sizes, mpi, torch, options.quick)
            lines = bandwidths(sides, 1 if options.quick else ROUNDS)
            print_table(ranks, lines)
            ticks = {float(size): text_of(size) for size in sizes[::2]}
            title = f"all_reduce of f32 by {ranks} processes"
            picture = chart(title, "GB/s", lines, log_y=True, across="size", ticks_across=ticks)
            (options.to / f"collectives-{ranks}.svg").write_text(picture)


if __name__ == "__main__":
    main()
