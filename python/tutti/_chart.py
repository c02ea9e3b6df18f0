"""Curves on the terminal, in dots of braille; and what they share with those of a picture."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutti._table import paint

# Of a character: two columns of four dots, by their bit in Unicode's block of braille.
_ACROSS, _DOWN = 2, 4
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
# Of the 256 that terminals have; legible on black and on white, and told apart by the colour-blind.
COLOURS = (
    "38;5;33",
    "38;5;166",
    "38;5;35",
    "38;5;133",
    "38;5;178",
    "38;5;80",
    "38;5;161",
    "38;5;244",
)
MARKS = "abcdefgh"  # without colours, and of those there are as many
_TICKS_DOWN, _TICK_ACROSS = 5, 16  # lines between two; characters
_SHORTEST = 20  # columns that a curve needs


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Scale:
    """From a value to a place between 0 and 1."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return (at - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Round values in it, about so many."""
        if self.log and self.high / self.low > 10:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            steps = [[1], [1, 3], [1, 2, 5]]
            for parts in reversed(steps):
                found = [
                    part * 10.0**power
                    for power in range(powers.start - 1, powers.stop)
                    for part in parts
                    if self.low <= part * 10.0**power <= self.high
                ]
                if len(found) <= most or parts == [1]:
                    return found
        step = _round_step((self.high - self.low) / max(1, most))
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [round((first + i) * step, 12) for i in range(count)]


def scale_of(values: Sequence[float], log: bool, margin: float = 0.0) -> Scale:
    low, high = min(values), max(values)
    if log:
        return Scale(low, high, True) if high > low else Scale(low / 2, high * 2, True)
    wide = (high - low) or abs(high) or 1.0
    return Scale(low - margin * wide, high + (margin * wide if high > low else wide))


def usable(points: Sequence[tuple[float, float]], log: bool) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(y) and (y > 0 or not log)]


def thinned(
    points: Sequence[tuple[float, float]], scale: Scale, columns: int
) -> list[tuple[int, float]]:
    """One value for each column that has some: their mean."""
    sums: dict[int, tuple[float, int]] = {}
    for x, y in points:
        column = min(columns - 1, int(scale.place(x) * (columns - 1) + 0.5))
        total, count = sums.get(column, (0.0, 0))
        sums[column] = (total + y, count + 1)
    return [(column, total / count) for column, (total, count) in sorted(sums.items())]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """As many decimals for all."""
    if any(tick and not 1e-3 <= abs(tick) < 1e7 for tick in ticks):
        return [f"{tick:.0e}" for tick in ticks]
    decimals = max((len(f"{tick:.10g}".partition(".")[2]) for tick in ticks), default=0)
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def draw(
    curves: Sequence[Curve], width: int, height: int, log: bool = False, coloured: bool = False
) -> list[str]:
    """Lines of a picture with axes. Several curves are told apart by colours, or by letters."""
    x_scale = scale_of([x for curve in curves for x, _ in curve.points], False)
    y_scale = scale_of([y for curve in curves for _, y in curve.points], log)
    x_scale = Scale(x_scale.low, max(x_scale.high, x_scale.low + 1))
    ticks = y_scale.ticks(height // _TICKS_DOWN + 2)
    rows = [round((1 - y_scale.place(tick)) * (height - 1)) for tick in ticks]
    labels = dict(zip(rows, tick_texts(ticks), strict=True))
    margin = max((len(label) for label in labels.values()), default=0)
    inside = max(_SHORTEST, width - margin - 2)
    by_letters = len(curves) > 1 and not coloured
    cells = _letters if by_letters else _braille
    picture = cells(curves, inside, height, x_scale, y_scale, coloured and len(curves) > 1)
    lines = [
        f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{''.join(picture[row])}"
        for row in range(height)
    ]
    return [*lines, *_axis_across(x_scale, inside, margin)]


def _axis_across(scale: Scale, inside: int, margin: int) -> list[str]:
    axis, text = ["─"] * inside, [" "] * (inside + margin + 2)
    free = 0
    ticks = scale.ticks(max(2, inside // _TICK_ACROSS))
    for tick, label in zip(ticks, tick_texts(ticks), strict=True):
        at = round(scale.place(tick) * (inside - 1))
        begin = min(margin + 2 + at - len(label) // 2, len(text) - len(label))
        if begin < free:
            continue
        axis[at] = "┬"
        text[begin : begin + len(label)] = label
        free = begin + len(label) + 1
    return [" " * (margin + 1) + "└" + "".join(axis), "".join(text).rstrip()]


def _dots(
    curve: Curve, across: int, down: int, x_scale: Scale, y_scale: Scale
) -> list[tuple[int, int]]:
    """Where a curve is, on a grid: its points and what joins them."""
    found: list[tuple[int, int]] = []
    for x, value in thinned(curve.points, x_scale, across):
        y = round((1 - y_scale.place(value)) * (down - 1))
        if found:
            before_x, before_y = found[-1]
            steps = max(x - before_x, abs(y - before_y))
            found += [
                (
                    before_x + round(i * (x - before_x) / steps),
                    before_y + round(i * (y - before_y) / steps),
                )
                for i in range(1, steps)
            ]
        found.append((x, y))
    return found


def _braille(
    curves: Sequence[Curve],
    width: int,
    height: int,
    x_scale: Scale,
    y_scale: Scale,
    coloured: bool,
) -> list[list[str]]:
    bits = [[0] * width for _ in range(height)]
    owner = [[0] * width for _ in range(height)]
    for number, curve in enumerate(curves):
        for x, y in _dots(curve, width * _ACROSS, height * _DOWN, x_scale, y_scale):
            row, column = y // _DOWN, x // _ACROSS
            bits[row][column] |= _DOTS[y % _DOWN][x % _ACROSS]
            owner[row][column] = number

    def cell(row: int, column: int) -> str:
        if not bits[row][column]:
            return " "
        text = chr(_BRAILLE + bits[row][column])
        return paint(text, COLOURS[owner[row][column]] if coloured else "")

    return _grid(width, height, cell)


def _letters(
    curves: Sequence[Curve],
    width: int,
    height: int,
    x_scale: Scale,
    y_scale: Scale,
    coloured: bool,
) -> list[list[str]]:
    marks = [[" "] * width for _ in range(height)]
    for number, curve in enumerate(curves):
        for x, y in _dots(curve, width, height, x_scale, y_scale):
            marks[y][x] = MARKS[number]
    return marks


def _grid(width: int, height: int, cell: Callable[[int, int], str]) -> list[list[str]]:
    return [[cell(row, column) for column in range(width)] for row in range(height)]


def _round_step(least: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1, 2, 5, 10) if part * power >= least * (1 - 1e-9))
