"""Draws docs/scale-*.svg and prints tables of how a cluster scales, from runs of the simulator.

    python bench/plot_scale.py [--most HOSTS]

From a thousand hosts to a million; the largest needs 11 GB of memory, all of them a quarter
of an hour.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

from common import ROOT, progress
from scale_runs import Run, run_scale

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SENSITIVITY_HOSTS = 1_000
COSTS = (
    *("timer_ns", "send_ns", "receive_ns", "connect_ns", "accept_ns", "handshake_ns"),
    *("spawn_ns", "exit_ns", "disk_operation_ns", "within_rack_ns", "between_racks_ns"),
    *("jitter_ns", "wire_byte_ns", "disk_latency_ns", "disk_sync_ns"),
)

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 150, 30, 50
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7a5195")


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]


def chart(title: str, unit: str, lines: Sequence[Line], log_y: bool) -> str:
    """An SVG: hosts to the right on a logarithmic axis."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_low, x_high = math.log10(min(xs)), math.log10(max(xs))
    low = math.floor(math.log10(min(ys))) if log_y else 0.0
    high = math.ceil(math.log10(max(ys))) if log_y else max(ys) * 1.1

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = ((math.log10(y) if log_y else y) - low) / (high - low)
        bottom = HEIGHT - BOTTOM
        return LEFT + across * (WIDTH - LEFT - RIGHT), bottom - up * (bottom - TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>',
    ]
    for power in range(math.ceil(x_low), math.floor(x_high) + 1):
        x, bottom = place(10.0**power, 10**low if log_y else low)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}" stroke="#ddd"/>')
        out.append(
            f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{10**power:,}</text>'
        )
    ticks = (
        [10.0**power for power in range(int(low), int(high) + 1)]
        if log_y
        else [high * i / 4 for i in range(5)]
    )
    for tick in ticks:
        _, y = place(min(xs), tick)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.3g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}">hosts</text>')
    out.append(f'<text x="6" y="{TOP - 14}">{unit}</text>')
    for line, colour in zip(lines, COLOURS, strict=False):
        points = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        out.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{line.name}</text>')
    return "\n".join([*out, "</svg>", ""])


def figure_line(name: str, runs: Sequence[Run], key: str) -> Line:
    return Line(name, [(run.hosts, run.figures[key]) for run in runs])


def print_runs(runs: Sequence[Run]) -> None:
    heads = ("hosts", "processes", "attach", "launch", "replace", "end")
    heads += ("idle", "job", "peak", "real")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for run in runs:
        figures = run.figures
        print(
            f"| {run.hosts:,} | {figures['processes']:,.0f} | {figures['attach_s'] * 1e3:,.0f} ms "
            f"| {figures['launch_s'] * 1e3:,.1f} ms | {figures['replace_s']:.2f} s "
            f"| {figures['end_s'] * 1e3:,.0f} ms | {figures['idle_bytes_per_host']:,.0f} B "
            f"| {figures['job_bytes_per_host']:,.0f} B | {run.peak_bytes / 2**30:.1f} GiB "
            f"| {run.wall_s:,.0f} s |"
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
            runs.append(run_scale(size))
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
