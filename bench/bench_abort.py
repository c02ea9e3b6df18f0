"""How fast survivors leave a collective when a rank is killed with SIGKILL at a random moment.

Four ranks on this machine under a keeper, all-reducing vectors of 4 B to 16 MiB; one after the
other is killed, a spare takes its place, and the gang goes on in the next epoch. The time is from
just before kill(2) to the last survivor's exception, which must name the right rank. "limit" is the
50 ms that are allowed. The same on two hosts, agents of this machine with two ranks each: there the
news travels from keeper to agent to coordinator to agent.
"""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import ROOT, Case, build, progress, spread_of

RANKS = 4
ALLOWED_MS = 50.0
PATIENCE_S = 30


def environment(home: Path) -> dict[str, str]:
    more = {"PYTHONPATH": str(ROOT / "python"), "TUTTI_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return os.environ | more


@contextmanager
def two_hosts() -> Iterator[Path]:
    """The home of the head; gone after the block."""
    homes = [Path(tempfile.mkdtemp(prefix="tt", dir="/tmp")) for _ in range(2)]  # short: sockets

    def tutti(home: Path, *words: str) -> str:
        command = [build("tutti", "_core") / "tutti", *words]
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"tutti {words[0]}: {done.stderr}")
        return done.stdout

    slots = ("--slots", str(RANKS // 2))
    try:
        tutti(homes[0], "up", "--name", "one", *slots)
        told = json.loads(tutti(homes[0], "token", "--json"))
        tutti(homes[1], "join", told["head"], "--token", told["token"], "--name", "two", *slots)
        yield homes[0]
    finally:
        for home in reversed(homes):
            tutti(home, "down")
            shutil.rmtree(home)


class Gang:
    """The job, and what its ranks have told so far."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.end_file = folder / "end"
        command = [sys.executable, str(ROOT / "bench/abort_worker.py"), str(self.end_file)]
        (folder / "job.toml").write_text(
            f'name = "abort"\n[gang.worker]\ncount = {RANKS}\ncommand = {json.dumps(command)}\n'
            'strategy = "one_for_one"\nspares = 1\npreload = ["numpy", "tutti"]\n'
            'restarts = { killed = 10000, delay = "0s" }\n'
        )
        words = [build("tutti", "_core") / "tutti", "run", "--json", folder / "job.toml"]
        self.running = subprocess.Popen(
            words,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pids: dict[int, int] = {}

    def next(self) -> dict:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            event = json.loads(line)
            if event.get("event") == "output" and event["text"].startswith("{"):
                return json.loads(event["text"])
        raise RuntimeError("the gang ended")

    def wait_until_joined(self) -> None:
        epochs: dict[int, int] = {}
        while len(epochs) < RANKS or len(set(epochs.values())) > 1:
            told = self.next()
            if told["what"] == "joined":
                epochs[told["rank"]] = told["epoch"]
                self.pids[told["rank"]] = told["pid"]

    def kill_one(self, dice: random.Random) -> tuple[float, bool]:
        """Milliseconds until the last survivor left, and whether all named the right rank."""
        victim = dice.randrange(RANKS)
        time.sleep(dice.uniform(0.01, 0.05))
        killed_ns = time.monotonic_ns()
        os.kill(self.pids[victim], signal.SIGKILL)
        left = {}
        right = True
        while len(left) < RANKS - 1:
            told = self.next()
            if told["what"] == "lost":
                left[told["rank"]] = told["at_ns"]
                right = right and told["ranks"] == [victim]
        self.wait_until_joined()
        return (max(left.values()) - killed_ns) / 1e6, right

    def end(self) -> None:
        self.end_file.touch()
        try:
            self.running.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.running.kill()


def kill_many(home: Path, kills: int) -> tuple[list[float], int]:
    """How long each took in milliseconds, and how often a wrong rank was named."""
    dice = random.Random(1)
    times, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        gang = Gang(Path(folder), home)
        try:
            gang.wait_until_joined()
            for _ in range(kills):
                took, right = gang.kill_one(dice)
                times.append(took)
                wrong += not right
        finally:
            gang.end()
    return times, wrong


def cases(where: str, times: list[float], wrong: int) -> Iterator[Case]:
    progress(f"times{where} in ms: {', '.join(f'{took:.1f}' for took in sorted(times))}")
    note = f"{len(times)} kills; {wrong} named wrongly"
    for name, value in (("median", statistics.median(times)), ("slowest", max(times))):
        case = f"SIGKILL to last of {RANKS - 1} survivors' exception{where}, {name}"
        ratio = ALLOWED_MS / value
        yield Case(case, "ms", value, "limit", ALLOWED_MS, ratio, spread_of(times), note)


def run(quick: bool) -> Iterator[Case]:
    kills = 20 if quick else 100
    with tempfile.TemporaryDirectory() as home:
        yield from cases("", *kill_many(Path(home), kills))
    with two_hosts() as home:
        yield from cases(" on two hosts", *kill_many(home, kills))
