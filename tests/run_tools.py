"""What the tests of `tutti run` share: starting it, and finding every process it is behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTTI = ROOT / "build/release/tutti"
PATIENCE_S = 120
MARK = "TUTTI_TEST_MARK"

# A cluster of whoever runs the tests is none of theirs.
os.environ["TUTTI_HOME"] = "/tmp/no-tutti-home-here"

# Whoever ran the tests in a script's background, or with nohup, had these ignored: tutti would too.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def tutti(*words: str | Path, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUTTI, "run", *words], capture_output=True, text=True, timeout=PATIENCE_S, **more
    )


def shell(script: str, *options: str, **more) -> subprocess.CompletedProcess[str]:
    return tutti(*options, "--", "sh", "-c", script, **more)


def python(script: str, *options: str, **more) -> subprocess.CompletedProcess[str]:
    return tutti(*options, "--", sys.executable, "-c", script, **more)


def marked(mark: str) -> list[str]:
    """Every living process that has the mark in its environment, as pid and command."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(f"{entry.name} {command.decode(errors='replace')}")
        except OSError:
            pass  # it has ended, or is none of ours
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail(f"never happened: {what}")


class Marked:
    """A mark for all processes of one test; none may be left at its end."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = os.environ | {MARK: self.mark}

    def start(self, *words: str | Path, **more) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [TUTTI, "run", *words],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def living(self) -> list[str]:
        return marked(self.mark)

    def keeper(self) -> int:
        def keepers() -> list[int]:
            return [int(line.split()[0]) for line in self.living() if " keeper " in line + " "]

        wait_until(lambda: len(keepers()) == 1, "the keeper runs")
        return keepers()[0]

    def all_gone(self) -> None:
        wait_until(lambda: not self.living(), f"nothing is left, but {self.living()}")


CGROUP_OR_NOT = pytest.mark.parametrize("how", [(), ("--no-cgroup",)], ids=["cgroup", "no-cgroup"])
