"""Line charts as SVG, for the pictures in docs/."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 150, 30, 50
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7a5195")


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]


def chart(
    title: str,
    unit: str,
    lines: Sequence[Line],
    log_y: bool,
    across: str = "hosts",
    ticks_across: Mapping[float, str] | None = None,
) -> str:
    """An SVG; what is `across` goes to the right on a logarithmic axis, with ticks at powers of ten
    unless others are given.
    """
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
    powers = range(math.ceil(x_low), math.floor(x_high) + 1)
    for at, text in (ticks_across or {10.0**power: f"{10**power:,}" for power in powers}).items():
        x, bottom = place(at, 10**low if log_y else low)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{text}</text>')
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
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}">{across}</text>')
    out.append(f'<text x="6" y="{TOP - 14}">{unit}</text>')
    for line, colour in zip(lines, COLOURS, strict=False):
        points = [place(x, y) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        out.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{line.name}</text>')
    return "\n".join([*out, "</svg>", ""])
