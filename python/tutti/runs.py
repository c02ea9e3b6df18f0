"""The runs in a folder: how far they are, how well they do, and in what they differ.

    for run in tutti.runs.find("runs"):
        print(run.name, run.status, run.loss)

`tutti runs` is this on the command line; docs/training.md shows it.
"""

import argparse
import contextlib
import json
import math
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutti._command import call
from tutti._error import Error
from tutti._run_folder import METRICS, STATUS, is_written
from tutti._table import BLUE, GREEN, RED, YELLOW, Column, paint, table, wants_colour, width_of

__all__ = ["RunSummary", "differing", "find", "metrics", "read"]

CONFIG = "config.toml"
EXPERIMENT = "experiment.json"  # of one that a sweep started: its configuration, and how it ended
# Folders within folders that are looked through for runs.
_DEEPEST = 6
# Of records, read from the end until there is one of each kind.
_TAIL_BYTES = 1 << 16
# Where a run is and how it is told of; no part of what it computes.
NO_DIFFERENCE = ("out", "resume", "json")
_COLOURS = {"done": GREEN, "running": BLUE, "failed": RED, "interrupted": YELLOW}


@dataclass(frozen=True)
class RunSummary:
    """A run as its folder tells it."""

    name: str  # its folder, within the one that was asked for
    folder: Path
    status: str  # "running", "done", "failed", or "interrupted": it can be gone on with
    why: str  # it failed
    step: int
    steps: int
    loss: float | None
    validation_loss: float | None
    tokens_a_second: float | None
    of_peak: float | None
    began: float | None  # seconds since 1970
    changed: float | None
    config: Mapping[str, Any]  # by dotted keys


def find(folder: str | os.PathLike[str] = "runs") -> list[RunSummary]:
    """The runs in a folder and in those within it, by name; or the one that it is of."""
    root = Path(folder)
    if not root.is_dir():
        raise Error(
            f"there is no folder {root}; say where runs are: tutti runs FOLDER", "not_found"
        )
    found = [read(each, _name(each, root)) for each in _folders(root, _DEEPEST)]
    return sorted(found, key=lambda run: natural(run.name))


def read(folder: str | os.PathLike[str], name: str | None = None) -> RunSummary:
    """The run of a folder."""
    path = Path(folder)
    if not _is_run(path):
        raise Error(f"{path} is no folder of a run (--out)", "not_found")
    experiment = _json(path / EXPERIMENT)
    status = _json(path / STATUS)
    config = _config(path) or flat(experiment.get("config", {}))
    first, last, evaluated = _ends(path / METRICS)
    # A script may fail when its run is done, and a run be gone on with by hand: the later counts.
    endings = [each for each in (status, experiment) if "status" in each and "time" in each]
    ending = max(endings, key=lambda each: each["time"], default={})
    state = "running" if is_written(path) else ending.get("status", "interrupted")
    times = [each["time"] for each in (last, evaluated, status, experiment) if "time" in each]
    return RunSummary(
        name=name or path.name,
        folder=path,
        status=state,
        why=ending.get("why", "") if state == "failed" else "",
        step=max(last.get("step", 0), evaluated.get("step", 0)),
        steps=config.get("steps", last.get("steps", 0)),
        loss=last.get("loss"),
        validation_loss=evaluated.get("validation_loss"),
        tokens_a_second=last.get("tokens_a_second"),
        of_peak=last.get("of_peak"),
        began=first.get("time"),
        changed=max(times, default=None),
        config=config,
    )


def metrics(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All records of a run; a last one that is not whole is left out."""
    try:
        data = (Path(folder) / METRICS).read_bytes()
    except OSError as error:
        raise Error(f"{Path(folder) / METRICS}: {error.strerror}", "not_found") from None
    records = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            records.append(json.loads(line))
    return records


def differing(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys in which configurations differ, in their order."""
    each = list(configs)
    keys = dict.fromkeys(key for config in each for key in config if key not in NO_DIFFERENCE)
    return [key for key in keys if len({repr(config.get(key)) for config in each}) > 1]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """For each key its shortest ending that no other has: of "optim.rate.rate" it is "rate"."""
    names = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[at:]) for at in reversed(range(len(parts)))]
        names[key] = next(end for end in endings if end == key or len(ending_in(end, keys)) == 1)
    return names


def ending_in(name: str, keys: Iterable[str]) -> list[str]:
    """The keys that are called so or end in it; one that is called so is meant alone."""
    found = [key for key in keys if key == name or key.endswith(f".{name}")]
    return [name] if name in found else found


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables by dotted keys."""
    values: dict[str, Any] = {}
    for name, value in nested.items():
        key = f"{prefix}{name}"
        values |= flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return values


def natural(text: str) -> list[Any]:
    """To sort by: numbers within names count as numbers."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    return [float(part) if at % 2 else part for at, part in enumerate(parts)]


# Folders and files.


def _is_run(folder: Path) -> bool:
    return (folder / METRICS).is_file() or (folder / EXPERIMENT).is_file()


def _folders(root: Path, deep: int) -> list[Path]:
    if _is_run(root):
        return [root]
    if deep == 0:
        return []
    try:
        within = [Path(each) for each in os.scandir(root) if each.is_dir()]
    except OSError:
        return []
    within = [each for each in within if not each.name.startswith(".")]
    return [run for each in within for run in _folders(each, deep - 1)]


def _name(folder: Path, root: Path) -> str:
    name = str(folder.relative_to(root))
    return folder.resolve().name if name == "." else name


def _json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _config(folder: Path) -> dict[str, Any]:
    try:
        return flat(tomllib.loads((folder / CONFIG).read_text()))
    except (OSError, ValueError):
        return {}


def _ends(file: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The first record, the last of a step and the last of an evaluation. A long run has many: no
    more of them are read than it takes."""
    try:
        with file.open("rb") as opened:
            first = _record(opened.readline(_TAIL_BYTES))
            size, tail = opened.seek(0, os.SEEK_END), _TAIL_BYTES
            while True:
                begin = opened.seek(max(0, size - tail))
                lines = opened.read(size - begin).split(b"\n")[begin > 0 : -1]
                last, evaluated = _last(lines, b'"loss":'), _last(lines, b'"validation_loss":')
                if begin == 0 or (last and evaluated):
                    return first, last, evaluated
                tail *= 16
    except OSError:
        return {}, {}, {}


def _last(lines: Sequence[bytes], key: bytes) -> dict[str, Any]:
    return next((_record(line) for line in reversed(lines) if key in line), {})


def _record(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}


# For people.


def loss_text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def ago(when: float | None, now: float) -> str:
    if when is None:
        return ""
    seconds = max(0.0, now - when)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def value_text(value: Any) -> str:
    """As it is typed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(value_text, value))
    return str(value)


def status_colour(text: str) -> str:
    return _COLOURS.get(text, "")


def rows_of(
    runs: Sequence[RunSummary], keys: Sequence[str]
) -> tuple[list[Column], list[list[str]]]:
    """The table of runs, with columns for these keys of their configurations."""
    names = short_names([*dict.fromkeys(key for run in runs for key in run.config)])
    columns = [
        Column("run"),
        Column("status", colour=status_colour),
        Column("step", 4, right=True),
        Column("loss", 2, right=True),
        Column("validation", 1, right=True),
        Column("tokens/s", 6, right=True),
        Column("when", 5, right=True),
        *(Column(names.get(key, key), 3) for key in keys),
    ]
    now = time.time()
    rows = [
        [
            run.name,
            run.status,
            f"{run.step}/{run.steps}",
            loss_text(run.loss),
            loss_text(run.validation_loss),
            f"{run.tokens_a_second:,.0f}" if run.tokens_a_second else "",
            ago(run.changed, now),
            *(value_text(run.config.get(key)) for key in keys),
        ]
        for run in runs
    ]
    return columns, rows


def failures(runs: Iterable[RunSummary], coloured: bool = False) -> list[str]:
    """Of each that failed, why, in one line."""
    return [
        f"{paint('failed', RED if coloured else '')} {run.name}: {' '.join(run.why.split())}"
        for run in runs
        if run.status == "failed"
    ]


def as_json(run: RunSummary, keys: Sequence[str]) -> dict[str, Any]:
    told = {name: value for name, value in vars(run).items() if name not in ("folder", "config")}
    differs = {key: run.config.get(key) for key in keys}
    return {**told, "folder": str(run.folder), "differs": differs, "config": dict(run.config)}


_SORTS = {
    "name": lambda run: natural(run.name),
    "loss": lambda run: math.inf if run.loss is None else run.loss,
    "validation": lambda run: math.inf if run.validation_loss is None else run.validation_loss,
    "when": lambda run: -(run.changed or 0.0),
}


def _run(given: argparse.Namespace) -> None:
    runs = sorted(find(given.folder), key=_SORTS[given.sort])
    keys = differing(run.config for run in runs)
    if given.json:
        print(json.dumps([as_json(run, keys) for run in runs], indent=2))
        return
    if not runs:
        print(f"there are no runs in {given.folder}: begin one with `tutti train … --out=FOLDER`")
        return
    columns, rows = rows_of(runs, keys)
    coloured = wants_colour(sys.stdout)
    lines, left_out = table(columns, rows, width_of(sys.stdout), coloured)
    print("\n".join([*lines, *failures(runs, coloured)]))
    if left_out:
        print(f"no room for: {', '.join(left_out)} (all with --json)", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tutti runs", add_help=False, allow_abbrev=False)
    parser.add_argument("folder", nargs="?", default="runs")
    parser.add_argument("--sort", choices=tuple(_SORTS), default="name")
    parser.add_argument("--json", action="store_true")
    call("tutti runs", lambda: _run(parser.parse_args()))


if __name__ == "__main__":
    main()
