"""What runs recorded, as curves: `tutti plot` on the command line; docs/training.md shows it."""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tutti import _core
from tutti._chart import COLOURS, MARKS, Curve, draw, usable
from tutti._command import call
from tutti._error import Error
from tutti._table import paint, wants_colour
from tutti.runs import RunSummary, find, metrics

__all__ = ["main"]

_ALSO = {"validation": "validation_loss", "tokens/s": "tokens_a_second", "lr": "rate"}
_NO_CURVES = ("time", "step", "steps")
_HIGHEST = 20  # lines of a picture on the terminal
_AROUND = 6  # lines of the terminal that it leaves for what stands around it
_MOST = len(MARKS)  # curves that are told apart


def _runs(folders: Sequence[str]) -> list[RunSummary]:
    """Those that are named, and those in folders that are named."""
    found: list[RunSummary] = []
    for folder in folders:
        within = find(folder)
        if not within:
            raise Error(f"there are no runs in {folder}", "not_found")
        found += within
    return found


def _best(runs: list[RunSummary]) -> list[RunSummary]:
    if len(runs) <= _MOST:
        return runs

    def loss(run: RunSummary) -> float:
        known = (run.validation_loss, run.loss)
        return next((each for each in known if each is not None), math.inf)

    best = sorted(runs, key=loss)[:_MOST]
    print(f"{_MOST} of {len(runs)} runs, those with the lowest loss", file=sys.stderr)
    return best


def _curves(runs: Sequence[RunSummary], metric: str) -> list[Curve]:
    curves, known = [], set()
    for run in runs:
        records = metrics(run.folder) if run.status != "failed" or run.began else []
        known |= {key for record in records for key in record}
        points = [(record["step"], record[metric]) for record in records if metric in record]
        curves.append(Curve(run.name, points))
    if not any(curve.points for curve in curves):
        names = sorted(known - {*_NO_CURVES})
        if not names:
            raise Error("nothing is recorded yet", "not_found")
        near = _core.suggest(metric, names)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
        raise Error(f"nothing is recorded of {metric}; {hint}", "not_found")
    return curves


def _legend(curve: Curve, mark: str, colour: str, several: bool, coloured: bool) -> str:
    before = ""
    if several:
        before = (paint("━━", colour) if coloured else mark) + "  "
    if not curve.points:
        return f"{before}{curve.name}  nothing"
    step, value = curve.points[-1]
    return f"{before}{curve.name}  {value:.5g} at step {step:,}"


def _run(given: argparse.Namespace) -> None:
    metric = _ALSO.get(given.metric, given.metric)
    curves = _curves(_best(_runs(given.runs)), metric)
    if given.json:
        told = [{"run": curve.name, "metric": metric, "points": curve.points} for curve in curves]
        print(json.dumps(told))
        return
    drawn = [Curve(curve.name, usable(curve.points, given.log)) for curve in curves]
    if not any(curve.points for curve in drawn):
        raise Error(f"{metric} has no values that can be drawn", "invalid")
    title = metric.replace("_", " ") + (" (logarithmic)" if given.log else "")
    if given.png is not None:
        from tutti._picture import save_picture

        save_picture(given.png, title, [curve for curve in drawn if curve.points], given.log)
        print(f"{given.png}", file=sys.stderr)
        return
    coloured = wants_colour(sys.stdout)
    size = shutil.get_terminal_size()
    height = max(_AROUND, min(_HIGHEST, size.lines - _AROUND - len(curves)))
    several = len(curves) > 1
    print(title)
    print("\n".join(draw(drawn, size.columns, height, given.log, coloured)))
    for curve, mark, colour in zip(drawn, MARKS, COLOURS, strict=False):
        print(_legend(curve, mark, colour, several, coloured)[: None if coloured else size.columns])


def main() -> None:
    parser = argparse.ArgumentParser(prog="tutti plot", add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--metric", default="loss")
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--png", type=Path)
    parser.add_argument("--json", action="store_true")
    call("tutti plot", lambda: _run(parser.parse_args()))


if __name__ == "__main__":
    main()
