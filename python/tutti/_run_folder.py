"""What a run tells of itself in its folder while it goes on: records, and how it ended.

    metrics.jsonl                  a record a line
    events.out.tfevents.000001     the same for TensorBoard; another file each time it goes on
    status.json                    how it ended: not there while it runs, nor when it was killed

Who writes has an exclusive lock on metrics.jsonl, which the kernel takes back from whoever dies:
by that others see whether the run goes on, and a second writer is refused.
"""

import contextlib
import fcntl
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tutti import _tensorboard
from tutti._error import Error

METRICS, STATUS = "metrics.jsonl", "status.json"
_EVENTS = "events.out.tfevents."
# What TensorBoard calls the keys of a record; it groups by what stands before the slash.
_TAGS = {
    "loss": "loss/training",
    "validation_loss": "loss/validation",
    "norm": "optimizer/norm",
    "rate": "optimizer/rate",
    "tokens_a_second": "speed/tokens_a_second",
    "of_peak": "speed/of_peak",
    "waited": "speed/waited",
    "communicated": "speed/communicated",
    "memory_bytes": "memory/bytes",
}
# Records that a disk may be behind before training waits for it: minutes, in a few MiB.
_MOST_WAITING = 10_000
# For a writer that was just killed to be gone, and for who only looks at the lock.
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


class RunFolder:
    """Writes what is noted, in a thread of its own. Use it with ``with``; what ends that is the
    run's status. Without a path it does nothing."""

    def __init__(self, path: Path | None, steps_done: int) -> None:
        """Records of later steps than those done are of a process that was lost: they go."""
        self.path = None if path is None else Path(path)
        self._done = steps_done
        self._kept: set[tuple[int, bool]] = set()  # records: of which step, and whether evaluated
        self._files: list[Any] = []
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue(_MOST_WAITING)
        self._closing = False
        self._trouble: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)

    def note(self, record: dict[str, Any]) -> None:
        """A record of the step that it has, once. What went wrong before is raised here."""
        if self.path is None or _kind_of(record) in self._kept:
            return
        self._check()
        made = {"time": time.time(), **record}
        self._queue.put(lambda: self._write(made))

    def flush(self) -> None:
        """All that was noted is on the disk."""
        if self.path is None:
            return
        self._queue.put(self._sync)
        self._queue.join()
        self._check()

    def __enter__(self) -> Self:
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            lines = (self.path / METRICS).open("ab", buffering=0)
            self._files.append(lines)
            try:
                _lock(lines.fileno(), self.path)
                (self.path / STATUS).unlink(missing_ok=True)
                self._kept = _trim_lines(self.path / METRICS, self._done)
                events = _trim_events(self.path, self._done).open("xb", buffering=0)
                self._files.append(events)
                events.write(_tensorboard.beginning(time.time(), self._done + 1))
            except BaseException:
                self._close_files()
                raise
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.path is None:
            return
        try:
            self._end(error)
        finally:
            self._close_files()

    def _end(self, error: BaseException | None) -> None:
        self._queue.put(self._stop)
        self._thread.join()
        status: dict[str, Any] | None = None
        if error is None:
            self._check()
            status = {"status": "done"}
        elif isinstance(error, Exception):
            status = {"status": "failed", "why": str(error) or type(error).__name__}
        if status is not None and self.path is not None:
            with contextlib.suppress(OSError) if error else contextlib.nullcontext():
                write_json(self.path / STATUS, {"time": time.time(), **status})

    def _check(self) -> None:
        if self._trouble is not None:
            raise Error(f"{self.path}: records cannot be written: {self._trouble}", "failed")

    # In the thread.

    def _work(self) -> None:
        while not self._closing:
            task = self._queue.get()
            try:
                if self._trouble is None or task == self._stop:
                    task()
            except Exception as error:
                self._trouble = error
            finally:
                self._queue.task_done()

    def _write(self, record: dict[str, Any]) -> None:
        lines, events = self._files
        _write_whole(lines, json.dumps(record).encode() + b"\n")
        values = {tag: record[key] for key, tag in _TAGS.items() if key in record}
        _write_whole(events, _tensorboard.scalars(record["time"], record["step"], values))

    def _sync(self) -> None:
        for file in self._files:
            os.fsync(file.fileno())

    def _stop(self) -> None:
        self._closing = True

    def _close_files(self) -> None:
        for file in self._files:
            file.close()
        self._files = []


def is_written(folder: Path) -> bool:
    """Whether a process trains there now."""
    try:
        with (folder / METRICS).open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # there is no such file, or its disk has no locks
    return False


def write_json(file: Path, value: Any) -> None:
    """Whole or not at all."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(json.dumps(value, indent=2) + "\n")
    new.replace(file)


def _lock(descriptor: int, folder: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise Error(
                    f"another process trains in {folder} now: end it, or say another folder",
                    "exists",
                ) from None
            time.sleep(_PAUSE_SECONDS)
        except OSError:
            return  # a file system without locks: nobody can be told apart


def _write_whole(file: Any, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _kind_of(record: dict[str, Any]) -> tuple[int, bool]:
    return record["step"], "validation_loss" in record


def _trim_lines(file: Path, steps_done: int) -> set[tuple[int, bool]]:
    kept = 0
    kinds = set()
    for line in file.read_bytes().splitlines(keepends=True) if steps_done else []:
        try:
            kind = _kind_of(json.loads(line))
            late = not line.endswith(b"\n") or kind[0] > steps_done
        except (ValueError, LookupError, TypeError):
            late = True
        if late:
            break
        kept += len(line)
        kinds.add(kind)
    os.truncate(file, kept)
    return kinds


def _trim_events(folder: Path, steps_done: int) -> Path:
    """The name of the next file."""
    files = sorted(folder.glob(f"{_EVENTS}[0-9]*"))
    for file in files:
        count, kept = 0, 0
        for event, end in _tensorboard.records(file.read_bytes()):
            if _tensorboard.step_of(event) > steps_done:
                break
            count, kept = count + 1, end
        if count > 1:  # more than the version of the format
            os.truncate(file, kept)
        else:
            file.unlink()
    last = int(files[-1].name.removeprefix(_EVENTS)) if files else 0
    return folder / f"{_EVENTS}{last + 1:06d}"
