"""What the simulator predicts for four agents on this machine, beside what four real ones take.

Both run jobs of 8 short processes per agent, one after the other, over a head and four agents that
share this machine's cores; what is compared is the time from a job's submission to its end, by the
head's clock. Costs are measured in each round, so that both meet the same machine. The ratio is
how near the prediction is: the smaller of the two over the larger.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import Case, bench_program, build, spread_of

AGENTS = 4
SLOTS = 8
JOBS = 15
TRUE = "/bin/true"


class Machine:
    """A home of its own, on this machine."""

    def __init__(self, tutti: Path, home: Path) -> None:
        self.tutti = tutti
        self.environment = os.environ | {"TUTTI_HOME": str(home)}

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [self.tutti, *words], env=self.environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise RuntimeError(f"tutti {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def four_agents(tutti: Path) -> Iterator[Machine]:
    """The head's machine."""
    root = Path(tempfile.mkdtemp(prefix="tt", dir="/tmp"))  # short: sockets live in it
    machines = [Machine(tutti, root / str(number)) for number in range(AGENTS)]
    head = machines[0]
    try:
        head("up", "--name", "agent0", "--slots", str(SLOTS))
        for number, machine in enumerate(machines[1:], 1):
            token = json.loads(head("token", "--json"))
            machine(
                *("join", token["head"], "--token", token["token"]),
                *("--name", f"agent{number}", "--slots", str(SLOTS)),
            )
        yield head
    finally:
        for machine in reversed(machines):
            machine("down")
        shutil.rmtree(root, ignore_errors=True)


def measured_ms(head: Machine) -> float:
    for _ in range(JOBS):
        head("run", "-n", str(AGENTS * SLOTS), "--", TRUE)
    jobs = sorted(json.loads(head("jobs", "--all", "--json")), key=lambda job: job["job"])
    return statistics.median((job["ended"] - job["submitted"]) * 1e3 for job in jobs[-JOBS:])


def predicted_ms(tutti: Path) -> float:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        costs = Path(folder) / "here.toml"
        program = bench_program("sim_costs")
        costs.write_text(subprocess.check_output([program, "this machine", folder], text=True))
        cores = len(os.sched_getaffinity(0))
        words = ["--hosts", str(AGENTS + 1), "--cores", str(cores), "--costs", costs, "--json"]
        told = subprocess.check_output([tutti, "sim", "turnaround", *words], text=True)
    return float(json.loads(told)["figures"]["turnaround_s"]) * 1e3


def run(quick: bool) -> Iterator[Case]:
    tutti = build("tutti") / "tutti"
    rounds = []
    with four_agents(tutti) as head:
        measured_ms(head)  # warm
        for _ in range(3 if quick else 9):
            rounds.append((predicted_ms(tutti), measured_ms(head)))
    nearness = [min(ours, theirs) / max(ours, theirs) for ours, theirs in rounds]
    yield Case(
        f"a job of {AGENTS * SLOTS} processes, predicted",
        "ms",
        statistics.median(ours for ours, _ in rounds),
        f"{AGENTS} real agents",
        statistics.median(theirs for _, theirs in rounds),
        statistics.median(nearness),
        spread_of(nearness),
        "the ratio is how near: the smaller over the larger",
    )
