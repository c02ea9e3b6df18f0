"""What it costs that a step survives a kill, and that it does: commit beside the plain AdamW loop.

"limit" is the loop that a kill would tear: a ratio of 0.83 is a cost of 20 %, the most that is
allowed. Beside a step of a model the limit is 1 % of its time; the step is forward and backward of
ten dense layers in NumPy, for 1,024 samples. Then ranks are killed with SIGKILL at random moments
of steps that are little but reducing and committing; what they come to has to have the bits of a
run that nobody disturbed.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from common import ROOT, Case, bench_program, build, compare, printed_number, spread_of

RANKS = 4
LAYERS, WIDTH, SAMPLES = 10, 1000, 1024  # ten million parameters
ALLOWED = 0.01  # of a step
PATIENCE_S = 60

STEP = f"""
import time
import numpy as np
layers = [np.full(({WIDTH}, {WIDTH}), 0.001, np.float32) for _ in range({LAYERS})]
def step():
    began, inputs = time.perf_counter(), [np.ones(({SAMPLES}, {WIDTH}), np.float32)]
    for layer in layers:
        inputs.append(np.maximum(inputs[-1] @ layer, 0))
    back = inputs.pop()
    for layer in reversed(layers):
        gradient = inputs[-1].T @ back
        back = (back @ layer.T) * (inputs.pop() > 0)
    return (time.perf_counter() - began) * 1e3
print(sorted(step() for _ in range(3))[1])
"""


def over_plain(program: Path, quick: bool) -> Iterator[Case]:
    for elements in (1_000_000, 10_000_000) if quick else (1_000_000, 10_000_000, 100_000_000):
        yield compare(
            case=f"AdamW of {elements // 1_000_000} million elements, one thread",
            unit="ms",
            higher_is_better=False,
            rounds=5 if quick else 15,
            ours=partial(printed_number, program, "commit", str(elements)),
            peer="limit",
            theirs=partial(printed_number, program, "plain", str(elements)),
            note="allowed: 0.83x",
        )


def within_step(program: Path, rounds: int) -> Case:
    """What commit adds to the plain loop, beside the part of a step that it may take."""
    elements = str(LAYERS * WIDTH * WIDTH)
    added, allowed = [], []
    for _ in range(rounds):
        commit = printed_number(program, "commit", elements)
        plain = printed_number(program, "plain", elements)
        step_ms = printed_number(sys.executable, "-c", STEP, env={"OMP_NUM_THREADS": "1"})
        added.append(max(commit - plain, 0.001))
        allowed.append(ALLOWED * (step_ms + plain))
    ratios = [most / took for took, most in zip(added, allowed, strict=True)]
    ours, theirs = statistics.median(added), statistics.median(allowed)
    part = ours / theirs * ALLOWED
    case = f"added to a step of {LAYERS * WIDTH * WIDTH // 1_000_000} million parameters"
    note = f"{part:.2%} of a step of {theirs / ALLOWED:,.0f} ms; allowed: 1 %"
    return Case(
        case, "ms", ours, "limit", theirs, statistics.median(ratios), spread_of(ratios), note
    )


class Gang:
    """A job of ranks that step and commit, and what they have told so far."""

    def __init__(self, folder: Path, steps: int) -> None:
        command = [sys.executable, str(ROOT / "bench/commit_worker.py"), str(steps)]
        (folder / "job.toml").write_text(
            f'name = "commit"\n[gang.worker]\ncount = {RANKS}\ncommand = {json.dumps(command)}\n'
            'strategy = "one_for_one"\nspares = 1\npreload = ["numpy", "tutti"]\n'
            'restarts = { killed = 10000, delay = "0s" }\n'
        )
        env = os.environ | {"PYTHONPATH": str(ROOT / "python"), "TUTTI_HOME": str(folder / "home")}
        env |= {"OMP_NUM_THREADS": "1"}
        words = [build("tutti", "_core") / "tutti", "run", "--json", folder / "job.toml"]
        self.running = subprocess.Popen(
            words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pids: dict[int, int] = {}
        self.digests: set[str] = set()

    def hear(self) -> dict | None:
        """What a rank tells next; nothing at the end."""
        assert self.running.stdout is not None
        for line in self.running.stdout:
            event = json.loads(line)
            if event.get("event") == "output" and event["text"].startswith("{"):
                told = json.loads(event["text"])
                if told["what"] == "done":
                    self.digests.add(told["digest"])
                return told
        return None

    def all_joined(self) -> bool:
        """Waits until all are in one epoch; false when they have come to the end."""
        epochs: dict[int, int] = {}
        while len(epochs) < RANKS or len(set(epochs.values())) > 1:
            told = self.hear()
            if told is None or told["what"] == "done":
                return False
            epochs[told["rank"]] = told["epoch"]
            self.pids[told["rank"]] = told["pid"]
        return True

    def end(self) -> set[str]:
        while self.hear() is not None:
            pass
        code = self.running.wait(PATIENCE_S)
        if code != 0:
            raise RuntimeError(f"a gang of the commit benchmark ended with code {code}")
        return self.digests

    def stop(self) -> None:
        if self.running.poll() is None:
            self.running.terminate()
            self.running.wait(PATIENCE_S)


def survived(kills: int, steps: int) -> Case:
    """Runs until so many ranks were killed; the digest of each run counts for its kills."""
    dice = random.Random(1)
    right = total = runs = 0
    with tempfile.TemporaryDirectory() as name:
        expected = finished(Gang(Path(name), steps), 0, dice)[0]
        while total < kills:
            digests, killed = finished(Gang(Path(name), steps), kills - total, dice)
            total, runs = total + killed, runs + 1
            right += killed if digests == expected and len(digests) == 1 else 0
    note = f"{runs} runs of {steps} steps by {RANKS} ranks"
    case = "SIGKILLs after which every bit was right"
    return Case(case, "kills", right, "limit", total, right / total, 0.0, note)


def finished(gang: Gang, kills: int, dice: random.Random) -> tuple[set[str], int]:
    """The digests that the gang comes to, and how often one of it was killed on the way."""
    killed = 0
    try:
        while killed < kills and gang.all_joined():
            time.sleep(dice.uniform(0.0, 0.05))
            try:
                os.kill(gang.pids[dice.randrange(RANKS)], signal.SIGKILL)
            except ProcessLookupError:  # it was done
                break
            killed += 1
        return gang.end(), killed
    finally:
        gang.stop()


def run(quick: bool) -> Iterator[Case]:
    program = bench_program("commit")
    yield from over_plain(program, quick)
    yield within_step(program, 2 if quick else 7)
    yield survived(10 if quick else 200, 150 if quick else 1000)
