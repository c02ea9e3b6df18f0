"""Draws docs/scale-*.svg and prints tables of how a cluster scales, from runs of the simulator.

    python bench/plot_scale.py [--most HOSTS]

From a thousand hosts to a million, with a process on each; the largest needs 14 GB of memory, all
of them a quarter of an hour.
"""

import argparse
from collections.abc import Sequence

from chart import Line, chart
from common import ROOT, progress
from scale_runs import Run, run_scale

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
ALIKE = ("slots=1", "boot_over_s=2")  # whatever the size
SENSITIVITY_HOSTS = 1_000
COSTS = (
    *("timer_ns", "send_ns", "receive_ns", "connect_ns", "accept_ns", "handshake_ns"),
    *("spawn_ns", "exit_ns", "disk_operation_ns", "within_host_ns", "within_rack_ns"),
    *("between_racks_ns", "jitter_ns", "wire_byte_ns", "disk_latency_ns", "disk_sync_ns"),
)


def figure_line(name: str, runs: Sequence[Run], key: str) -> Line:
    return Line(name, [(run.hosts, run.figures[key]) for run in runs])


def print_runs(runs: Sequence[Run]) -> None:
    heads = ("hosts", "processes", "attach", "launch", "replace", "end")
    heads += ("idle", "job", "peak", "processor")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for run in runs:
        figures = run.figures
        print(
            f"| {run.hosts:,} | {figures['processes']:,.0f} | {figures['attach_s'] * 1e3:,.0f} ms "
            f"| {figures['launch_s'] * 1e3:,.1f} ms | {figures['replace_s']:.2f} s "
            f"| {figures['end_s'] * 1e3:,.0f} ms | {figures['idle_bytes_per_host']:,.0f} B "
            f"| {figures['job_bytes_per_host']:,.0f} B | {run.peak_bytes / 2**30:.1f} GiB "
            f"| {run.cpu_s:,.0f} s |"
        )


def print_sensitivity() -> None:
    base = run_scale(SENSITIVITY_HOSTS)
    print(f"\n{SENSITIVITY_HOSTS:,} hosts: launch {base.figures['launch_s'] * 1e3:.1f} ms\n")
    print("| entry | launch when halved | when doubled | replace when doubled |\n|---|---|---|---|")
    for cost in COSTS:
        half, twice = run_scale(base.hosts, f"{cost}=0.5"), run_scale(base.hosts, f"{cost}=2")
        launch_s = base.figures["launch_s"]
        cells = [f"{run.figures['launch_s'] / launch_s:.2f}x" for run in (half, twice)]
        print(f"| `{cost}` | {cells[0]} | {cells[1]} | {twice.figures['replace_s']:.2f} s |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws how the cluster scales.")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="hosts of the largest run")
    most = parser.parse_args().most
    runs = []
    for size in SIZES:
        if size <= most:
            progress(f"{size:,} hosts")
            runs.append(run_scale(size, settings=ALIKE))
    print_runs(runs)
    times = [
        figure_line("replace", runs, "replace_s"),
        figure_line("attach", runs, "attach_s"),
        figure_line("launch", runs, "launch_s"),
    ]
    memory = [Line("peak", [(run.hosts, run.peak_bytes / 2**30) for run in runs])]
    docs = ROOT / "docs"
    (docs / "scale-time.svg").write_text(chart("Virtual time", "s", times, log_y=False))
    picture = chart("Memory of the simulation", "GiB", memory, log_y=True)
    (docs / "scale-memory.svg").write_text(picture)
    print_sensitivity()


if __name__ == "__main__":
    main()
