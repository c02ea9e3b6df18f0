"""Tables on the terminal: what has no room is left out, the least important first."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

_GAP = 2
_SHORTEST = 12  # characters of a text column that is cut

RED, GREEN, YELLOW, BLUE, DIM = "31", "32", "33", "34", "2"


@dataclass(frozen=True)
class Column:
    """One of a table. Where there is no room those with the highest ``last`` go first; 0: never."""

    title: str
    last: int = 0
    right: bool = False
    colour: Callable[[str], str] | None = None  # of a cell, by its text; "" for none


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    coloured: bool = False,
) -> tuple[list[str], list[str]]:
    """Lines of at most ``width``, and the titles of columns that had no room. Those in which no row
    has anything are not shown."""
    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    sizes = {i: max(len(columns[i].title), *(len(row[i]) for row in rows)) for i in shown}
    left_out: list[str] = []

    def excess() -> int:
        return sum(sizes[i] for i in shown) + _GAP * (len(shown) - 1) - (width or 0)

    while width is not None and excess() > 0:
        # Of those that are as important the one further to the right.
        least = max(shown, key=lambda i: (columns[i].last, i))
        if columns[least].last == 0:
            longest = max(shown, key=lambda i: sizes[i])
            sizes[longest] = max(_SHORTEST, sizes[longest] - excess())
            break
        shown.remove(least)
        left_out.insert(0, columns[least].title)

    def line(cells: Sequence[str], colour: Callable[[int], str]) -> str:
        parts = []
        for i in shown:
            text = _cut(cells[i], sizes[i])
            padding = " " * (sizes[i] - len(text))
            painted = paint(text, colour(i) if coloured else "")
            parts.append(padding + painted if columns[i].right else painted + padding)
        return (" " * _GAP).join(parts).rstrip()

    def of_cell(i: int, text: str) -> str:
        made = columns[i].colour
        return made(text) if made else ""

    lines = [line([column.title for column in columns], lambda _: DIM)]
    lines += [line(row, lambda i, row=row: of_cell(i, row[i])) for row in rows]
    return lines, left_out


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and text else text


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def width_of(out: TextIO) -> int | None:
    """Of the terminal; None: it is none, and whatever is as long as it is."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def wants_colour(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
