"""A cluster of up to a million hosts in simulation, with the measured cost table, against its bars.

Agents, keepers, coordinator and head are the ones that run on Linux; hosts, network and disks are
simulated (docs/simulation.md). Times are virtual unless they say otherwise.
"""

from collections.abc import Iterator

from common import Case, compare
from scale_runs import Run, run_scale

GIB = 1 << 30


def bar(run: Run, case: str, unit: str, ours: float, most: float) -> Case:
    return compare(
        case=f"{case}, {run.hosts:,} hosts",
        unit=unit,
        higher_is_better=False,
        rounds=1,
        ours=lambda: ours,
        peer=f"bar of {most:,.4g} {unit}",
        theirs=most,
        note=f"costs: {run.costs}",
    )


def run(quick: bool) -> Iterator[Case]:
    hundred_thousand = run_scale(10_000 if quick else 100_000)
    processes = hundred_thousand.figures["processes"]
    yield bar(
        hundred_thousand,
        f"start {processes:,.0f} processes",
        "s",
        hundred_thousand.figures["launch_s"],
        5.0,
    )
    yield bar(
        hundred_thousand, "replace a dead host", "s", hundred_thousand.figures["replace_s"], 2.0
    )
    yield bar(
        hundred_thousand,
        "an idle agent and its simulated host",
        "bytes",
        hundred_thousand.figures["idle_bytes_per_host"],
        4096.0,
    )
    if quick:
        return
    million = run_scale(1_000_000, settings=("launch_only=1",))
    each = f"start {million.figures['processes']:,.0f} processes"
    yield bar(million, each, "s", million.figures["launch_s"], 5.0)
    yield bar(million, f"{each}, real time", "s", million.wall_s, 300.0)
    yield bar(million, f"{each}, memory at most", "GiB", million.peak_bytes / GIB, 12.0)
    yield bar(
        million,
        "an idle agent and its simulated host",
        "bytes",
        million.figures["idle_bytes_per_host"],
        4096.0,
    )
