"""One experiment of a sweep as a process: `tutti train`, with its output in the run's folder."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tutti._grid import Experiment, same
from tutti._run_folder import STATUS, write_json
from tutti.runs import EXPERIMENT, RunSummary, read

OUTPUT = "output.txt"
# Read at once, and kept of a line that does not end.
_MOST_BYTES = 1 << 16
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl


class Run:
    """An experiment in its folder: queued, or running, or over."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment = experiment
        self.folder = folder / experiment.name
        self.process: subprocess.Popen[bytes] | None = None
        self.summary = self.look()

    # What its folder tells.

    def look(self) -> RunSummary:
        """How far it is; as if it were new where there is nothing yet."""
        name, steps = self.experiment.name, self.experiment.config.get("steps", 0)
        known = (self.folder / EXPERIMENT).is_file()
        if known:
            self.summary = read(self.folder, name)
        else:
            self.summary = RunSummary(
                *(name, self.folder, "queued", "", 0, steps, None, None, None, None, None, None),
                self.experiment.config,
            )
        return self.summary

    def other_configuration(self) -> list[str]:
        """Where there is one of another configuration already: the keys, with both values."""
        try:
            before = json.loads((self.folder / EXPERIMENT).read_text())["config"]
        except (OSError, ValueError, LookupError):
            return []
        now = self.experiment.config
        keys = [key for key in {**before, **now} if key not in before or key not in now]
        keys += [k for k in now if k in before and not same({k: now[k]}, {k: before[k]})]
        return [f"{key} was {before.get(key)} and is {now.get(key)}" for key in keys]

    # The process.

    def start(self, command: Sequence[str], threads: int) -> None:
        """Begins it, or goes on with what was saved."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note({})
        (self.folder / STATUS).unlink(missing_ok=True)  # how it ended before
        words = [*command, *self.experiment.words, f"--out={self.folder}"]
        if threads:
            words.append(f"--threads={threads}")
        if (self.folder / "state.safetensors").exists():
            words.append("--resume=true")
        self._output = (self.folder / OUTPUT).open("a")
        self._rest, self._last, self._verdict = b"", "", {}
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to it from us, so that it is told as ended
            preexec_fn=_end_with_parent(),
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def read_output(self) -> bool:
        """Takes what it printed; false at the end of it."""
        assert self.process is not None and self.process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.process.stdout.fileno(), _MOST_BYTES)
            *lines, self._rest = (self._rest + data).split(b"\n")
            if self._rest and (not data or len(self._rest) > _MOST_BYTES):
                lines.append(self._rest)
                self._rest = b""
            for line in lines:
                self._take(line.decode(errors="replace"))
            self._output.flush()
            return bool(data)
        return True

    def finish(self) -> None:
        """It has ended: finds out how."""
        assert self.process is not None and self.process.stdout is not None
        code = self.process.wait()
        self.process.stdout.close()
        self._output.close()
        self.process = None
        before = read(self.folder)
        if code == 0 and before.status == "done":
            return
        told = before.why or (self._reason(code) if code else "it ended without having trained")
        self._note({"status": "failed", "why": told, "exit_code": code})

    def end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def note_interrupted(self) -> None:
        """It was ended because the sweep was: it has not failed."""
        if (self.folder / EXPERIMENT).exists():
            self._note({})

    def _take(self, line: str) -> None:
        try:
            event: dict[str, Any] = dict(json.loads(line))
        except (ValueError, TypeError):
            event = {"event": "output", "text": line}
        if event.get("event") == "output":
            text = str(event.get("text", ""))
            self._output.write(text if event.get("continued") else f"{text}\n")
            self._last = text.strip() or self._last
        elif event.get("event") == "verdict":
            self._verdict = event

    def _reason(self, code: int) -> str:
        how = self._verdict.get("error") or self._verdict.get("how") or f"exit code {code}"
        if self._verdict.get("end") == "timed_out":
            how = "its time was up"
        lines = [line.strip() for line in self._verdict.get("last_lines", []) if line.strip()]
        last = lines[-1] if lines else self._last
        return f"{how}: {last}" if last else how

    def _note(self, ending: dict[str, Any]) -> None:
        told = {"config": self.experiment.config, "words": self.experiment.words}
        write_json(self.folder / EXPERIMENT, {**told, "time": time.time(), **ending})


def _end_with_parent() -> Any:
    """For between fork and exec: who dies takes its experiments along, however it dies."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask
