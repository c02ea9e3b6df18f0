"""Curves as a PNG, by Pillow: drawn larger, then made smaller, so that lines are smooth."""

from collections.abc import Sequence
from pathlib import Path

from tutti._chart import Curve, scale_of, thinned, tick_texts
from tutti._error import Error

_WIDTH, _HEIGHT = 1200, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 40, 64, 70
_FINER = 3
_TEXT, _TITLE = 17, 21
# The same as on the terminal.
_COLOURS = ("#1b6ca8", "#d65f1e", "#2a9d6a", "#9a4f9e", "#c79a0a", "#35a7b5", "#c9184a", "#7a7a7a")
_INK, _PALE, _GRID = "#222222", "#666666", "#e4e4e4"
_TICKS = 8
_LEGEND_LINE = 26


def save_picture(file: Path, title: str, curves: Sequence[Curve], log: bool = False) -> None:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise Error(
            "pictures are drawn by Pillow, which is not there: pip install pillow", "not_found"
        ) from None
    if file.suffix.lower() != ".png":
        raise Error(f"{file}: write a name that ends in .png", "invalid")
    image = Image.new("RGB", (_WIDTH * _FINER, _HEIGHT * _FINER), "white")
    pen = ImageDraw.Draw(image)
    text_font, title_font = (ImageFont.load_default(size * _FINER) for size in (_TEXT, _TITLE))

    def fine(*numbers: float) -> tuple[float, ...]:
        return tuple(number * _FINER for number in numbers)

    def write(x: float, y: float, words: str, anchor: str, colour: str = _PALE) -> None:
        pen.text(fine(x, y), words, fill=colour, font=text_font, anchor=anchor)

    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    x_scale = scale_of([x for curve in curves for x, _ in curve.points], False)
    y_scale = scale_of([y for curve in curves for _, y in curve.points], log, 0.03)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x_scale.place(x) * (right - _LEFT),
            bottom - y_scale.place(y) * (bottom - _TOP),
        )

    ticks = y_scale.ticks(_TICKS)
    for tick, label in zip(ticks, tick_texts(ticks), strict=True):
        _, y = place(x_scale.low, tick)
        pen.line(fine(_LEFT, y, right, y), fill=_GRID, width=_FINER)
        write(_LEFT - 10, y, label, "rm")
    ticks = x_scale.ticks(_TICKS)
    for tick, label in zip(ticks, tick_texts(ticks), strict=True):
        x, _ = place(tick, y_scale.low)
        pen.line(fine(x, bottom, x, bottom + 6), fill=_PALE, width=_FINER)
        write(x, bottom + 12, label, "ma")
    pen.line(fine(_LEFT, bottom, right, bottom), fill=_PALE, width=_FINER)
    pen.text(fine(_LEFT, 18), title, fill=_INK, font=title_font, anchor="la")
    write((_LEFT + right) / 2, _HEIGHT - 14, "step", "mb")
    columns = right - _LEFT
    for curve, colour in zip(curves, _COLOURS, strict=False):
        means = thinned(curve.points, x_scale, columns)
        wide = (x_scale.high - x_scale.low) / (columns - 1)
        points = [fine(*place(x_scale.low + column * wide, y)) for column, y in means]
        if len(points) == 1:
            x, y = points[0]
            pen.ellipse((x - 9, y - 9, x + 9, y + 9), fill=colour)
        else:
            pen.line(points, fill=colour, width=2 * _FINER, joint="curve")
    longest = max(pen.textlength(curve.name, font=text_font) for curve in curves) / _FINER
    begin = right - longest - 44
    if len(curves) > 1:
        box = (begin - 12, _TOP, right, _TOP + len(curves) * _LEGEND_LINE + 12)
        pen.rectangle(fine(*box), fill="white", outline=_GRID, width=_FINER)
        for number, (curve, colour) in enumerate(zip(curves, _COLOURS, strict=False)):
            y = _TOP + 6 + (number + 0.5) * _LEGEND_LINE
            pen.line(fine(begin, y, begin + 26, y), fill=colour, width=3 * _FINER)
            write(begin + 36, y, curve.name, "lm", _INK)
    file.parent.mkdir(parents=True, exist_ok=True)
    image.resize((_WIDTH, _HEIGHT), Image.Resampling.LANCZOS).save(file)
