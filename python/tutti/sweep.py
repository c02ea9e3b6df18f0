"""Many experiments side by side: `tutti sweep` on the command line; docs/training.md shows it.

Each is a job of its own, as of `tutti train`, and a folder of its own in that of the sweep. Said
again, the same command goes on with what is not done.
"""

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tutti._command import call
from tutti._error import Error
from tutti._experiment import OUTPUT, Run
from tutti._grid import Grid, grid_of, options_of
from tutti._table import paint, table, wants_colour, width_of
from tutti.runs import as_json, failures, loss_text, rows_of, status_colour

__all__ = ["main"]

_LOOK_SECONDS = 0.5  # between two looks at how far they are
_LOCK = ".sweep.lock"
# Of `tutti train`: with a value, and without.
_TRAIN_VALUES = ("timeout", "grace", "env")
_TRAIN_FLAGS = ("local", "cluster")
_AROUND = 4  # lines of a terminal that the live table leaves
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_PARALLEL = 4096


@dataclass
class Given:
    """What the command line says."""

    script: Path | None = None
    tutti: str = "tutti"
    parallel: int = 1
    workers: int = 0  # as many as the mesh has
    mesh: str = ""
    out: Path | None = None
    json: bool = False
    train: list[str] = field(default_factory=list)  # options of `tutti train`
    keys: list[tuple[str, str | None]] = field(default_factory=list)  # of the script


def read_words(words: Sequence[str]) -> Given:
    """Options of the command before the file; behind it those of the script, and some of ours."""
    given = Given()
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].removeprefix("--").partition("=")
        takes = name in _TRAIN_VALUES or name in ("tutti", "parallel", "workers", "mesh", "out")
        if takes and not equals:
            at += 1
            if at == len(words):
                raise Error(f"--{name} needs a value", "invalid")
            value = words[at]
        at += 1
        if name in _TRAIN_VALUES:
            given.train.append(f"--{name}={value}")
        elif name in _TRAIN_FLAGS:
            given.train.append(f"--{name}")
        elif not _take(given, name, value):
            raise Error(f"there is no option --{name} before the file", "invalid")
    if at == len(words):
        raise Error(
            "no file to train with: tutti sweep examples/gpt.py --lr=1e-4,3e-4 --seed=0..3",
            "invalid",
        )
    given.script = Path(words[at])
    for name, text in options_of(words[at + 1 :]):
        if not _take(given, name, text):
            given.keys.append((name, text))
    return given


def _take(given: Given, name: str, value: str | None) -> bool:
    if name in ("parallel", "workers"):
        text = value or ""
        if not text.isdecimal() or not 1 <= int(text) <= _MOST_PARALLEL:
            raise Error(f"--{name} {text}: write a number from 1 to {_MOST_PARALLEL}", "invalid")
        setattr(given, name, int(text))
    elif name == "out":
        given.out = Path(value or "")
    elif name in ("mesh", "tutti"):
        setattr(given, name, value or "")
    elif name == "json":
        given.json = True
    elif name != "resume":  # which it does anyhow
        return False
    return True


class Sweep:
    """Runs the experiments of a grid, some at a time, and tells how they do."""

    def __init__(self, given: Given, grid: Grid, folder: Path) -> None:
        self.given = given
        self.folder = folder
        self.runs = [Run(each, folder) for each in grid.experiments]
        self._check_folder()
        self._waiting = [run for run in reversed(self.runs) if run.summary.status != "done"]
        self._skipped = len(self.runs) - len(self._waiting)
        for run in self._waiting:
            run.summary = _as_queued(run)
        self._running: list[Run] = []
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._live = not given.json and sys.stdout.isatty() and sys.stderr.isatty()
        self._shown = 0  # lines of the live table
        self._threads = 0
        if grid.has_threads and given.parallel > 1:
            sharers = min(given.parallel, len(self._waiting)) * max(1, given.workers)
            self._threads = max(1, len(os.sched_getaffinity(0)) // max(1, sharers))

    def _check_folder(self) -> None:
        for run in self.runs:
            if different := run.other_configuration():
                raise Error(
                    f"{run.folder} is of another configuration: {'; '.join(different[:3])}: say"
                    " another folder with --out",
                    "exists",
                )

    def run(self) -> int:
        """The exit code."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        self._tell("start", {"experiments": len(self.runs), "folder": str(self.folder)}, "")
        if self._skipped:
            self._say(f"{self._skipped} of {len(self.runs)} are done already")
        looked = 0.0
        while self._running or (self._waiting and not self._signals):
            while self._waiting and len(self._running) < self.given.parallel and not self._signals:
                self._start(self._waiting.pop())
            for key, _ in self._selector.select(_LOOK_SECONDS):
                run: Run = key.data
                if not run.read_output():
                    self._finish(run)
            if time.monotonic() - looked >= _LOOK_SECONDS:
                looked = time.monotonic()
                self._look()
        return self._end()

    def _start(self, run: Run) -> None:
        given = self.given
        words = [given.tutti, "train", "--json", *given.train]
        words += [f"--workers={given.workers}"] if given.workers else []
        words += [f"--mesh={given.mesh}"] if given.mesh else []
        before = run.summary
        run.start([*words, str(given.script)], self._threads)
        assert run.process is not None and run.process.stdout is not None
        self._selector.register(run.process.stdout, selectors.EVENT_READ, run)
        self._running.append(run)
        goes_on = (run.folder / "state.safetensors").exists()
        what = f"goes on after step {before.step}" if goes_on else "begins"
        self._tell("begin", {"run": run.experiment.name, "resumed": goes_on}, what, run)

    def _finish(self, run: Run) -> None:
        assert run.process is not None and run.process.stdout is not None
        self._selector.unregister(run.process.stdout)
        run.finish()
        self._running.remove(run)
        if self._signals:
            run.note_interrupted()
        summary = run.look()
        if summary.status == "done":
            last = loss_text(summary.validation_loss)
            words = f"done: validation loss {last}" if last else "done"
        elif summary.status == "failed":
            words = f"failed: {' '.join(summary.why.split())}; see {run.folder / OUTPUT}"
        else:
            words = f"interrupted after step {summary.step}"
        self._tell("end", as_json(summary, []), words, run)

    def _on_signal(self, number: int, _frame: Any) -> None:
        self._signals.append(number)
        # The first asks them to end, as Ctrl-C does of one; another does not wait for that.
        for run in self._running:
            run.end(signal.SIGTERM if len(self._signals) == 1 else signal.SIGKILL)

    # What is told.

    def _tell(self, event: str, record: dict[str, Any], words: str, run: Run | None = None) -> None:
        if self.given.json:
            print(json.dumps({"event": event, **record}), flush=True)
        elif words and not self._live and run is not None:
            self._say(f"{run.experiment.name} {words}")

    def _say(self, words: str) -> None:
        if not self.given.json:
            print(words, file=sys.stderr, flush=True)

    def _look(self) -> None:
        for run in self._running:
            run.summary = _as_running(run)
        if self._live:
            lines = shutil.get_terminal_size().lines - _AROUND
            self._show(self._lines(lines), "")

    def _show(self, lines: list[str], end: str) -> None:
        up = f"\x1b[{self._shown}A" if self._shown else ""
        print(f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in lines) + end, end="", flush=True)
        self._shown = len(lines)

    def _lines(self, most: int | None) -> list[str]:
        """The table; of a long one what runs, what failed, and the best of the rest."""
        shown = [run.summary for run in self.runs]
        if most is not None and len(shown) > most - 1:
            order = {"running": 0, "failed": 1, "done": 2}
            best = sorted(
                shown,
                key=lambda each: (
                    order.get(each.status, 3),
                    each.validation_loss if each.status == "done" else 0.0,
                ),
            )
            kept = {each.name for each in best[: max(1, most - 1)]}
            shown = [each for each in shown if each.name in kept]
        columns, rows = rows_of(shown, [])
        coloured = wants_colour(sys.stdout)
        lines, _ = table(columns, rows, width_of(sys.stdout), coloured)
        return [*lines, self._counts(coloured)]

    def _counts(self, coloured: bool) -> str:
        found = Counter(run.summary.status for run in self.runs)
        parts = [
            paint(f"{found[status]} {status}", status_colour(status) if coloured else "")
            for status in ("done", "running", "failed", "interrupted", "queued")
            if found[status]
        ]
        return f"{len(self.runs)} experiments: {', '.join(parts)}"

    def _end(self) -> int:
        for run in self.runs:
            run.look()
        summaries = [run.summary for run in self.runs]
        failed = [each for each in summaries if each.status == "failed"]
        done = [each for each in summaries if each.status == "done"]
        if self.given.json:
            record = {"done": len(done), "failed": len(failed), "experiments": len(self.runs)}
            self._tell("finish", {**record, "runs": [as_json(each, []) for each in summaries]}, "")
        else:
            if not self._live:
                self._shown = 0
            lines = [*self._lines(None), *failures(failed, wants_colour(sys.stdout))]
            if best := [each for each in done if each.validation_loss is not None]:
                first = min(best, key=lambda each: each.validation_loss or 0.0)
                lines.append(f"best: {first.folder}")
            self._show(lines, "") if self._live else print("\n".join(lines), flush=True)
        if self._signals:
            self._say("interrupted: the same command goes on with them")
            return 128 + self._signals[0]
        return 1 if failed else 0


def _as_queued(run: Run) -> Any:
    return _with_status(run.look(), "queued")


def _as_running(run: Run) -> Any:
    """Also before it has a lock on its records."""
    return _with_status(run.look(), "running")


def _with_status(summary: Any, status: str) -> Any:
    return type(summary)(**{**vars(summary), "status": status, "why": ""})


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Error(f"another `tutti sweep` works in {folder}", "exists") from None
        yield


def _run(words: Sequence[str]) -> None:
    try:
        given = read_words(words)
        assert given.script is not None
        grid = grid_of(given.script, given.keys, given.mesh)
        if grid.refuses_mesh:
            raise Error(f"--mesh: {given.script} has no such key", "invalid")
        folder = given.out or Path("runs") / f"{given.script.stem}-sweep"
    except Error as error:
        print(f"tutti sweep: {error}", file=sys.stderr)
        sys.exit(2)
    with _alone_in(folder):
        sys.exit(Sweep(given, grid, folder).run())


def main() -> None:
    call("tutti sweep", lambda: _run(sys.argv[1:]))


if __name__ == "__main__":
    main()
