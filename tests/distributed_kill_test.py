"""Workers of a run that are killed at random moments: no step is lost, and no bit differs.

TUTTI_KILL_SEEDS=20 tries more than the few seeds of every day.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fabric_tools import ENVIRONMENT
from run_tools import PATIENCE_S, ROOT, TUTTI, Marked

SEEDS = range(int(os.environ.get("TUTTI_KILL_SEEDS", "1")))
PATH = {"PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}
STEPS = 1000
WORDS = (
    *("--model.layers=2", "--model.heads=2", "--model.width=128", "--batch=4", "--context=8"),
    *("--lanes=2", f"--steps={STEPS}", "--evaluate_every=100", "--evaluate_batches=2"),
    *("--save_every=300", "--optim.rate.rate=1e-3", "--optim.rate.warm_up=2", "--threads=1"),
    "--json",
)


def command(folder: Path, *words: str) -> list[str | Path]:
    text = folder / "text.txt"
    text.write_text(("abcde" * 100 + "edcba" * 100) * 2)
    script = ROOT / "examples/gpt.py"
    return [TUTTI, "train", *words, script, f"--text={text}", f"--out={folder / 'run'}", *WORDS]


def environment(folder: Path, gang: Marked) -> dict[str, str]:
    home = {"TUTTI_HOME": str(folder / "home"), "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    return ENVIRONMENT | PATH | gang.environment | home


def told(output: str, kind: str) -> list[dict[str, Any]]:
    events = []
    for line in output.splitlines():
        event = json.loads(line)
        inner = json.loads(event["line"]) if event["event"] == "output" else event
        if inner["event"] == kind:
            events.append(inner)
    return events


def outcome(folder: Path) -> tuple[dict[int, tuple[float, float]], dict[int, float]]:
    """Losses and norms of the steps, and what was evaluated: each once."""
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    kinds = Counter((record["step"], "validation_loss" in record) for record in records)
    assert max(kinds.values()) == 1, kinds.most_common(3)
    steps = {each["step"]: (each["loss"], each["norm"]) for each in records if "loss" in each}
    return {step: steps[step] for step in (1, *range(10, STEPS + 1, 10)) if step in steps}, {
        each["step"]: each["validation_loss"] for each in records if "validation_loss" in each
    }


def workers_of(gang: Marked) -> list[int]:
    """Spares among them, and those that begin."""
    lines = [line.split() for line in gang.living() if "gpt.py" in line]
    return [int(words[0]) for words in lines if Path(words[1]).name != "tutti"]


def size_of(mesh: str) -> int:
    return math.prod(int(axis.partition("=")[2]) for axis in mesh.split(","))


def train_killed(folder: Path, gang: Marked, mesh: str, kills: int, seed: int) -> tuple[str, int]:
    chance = random.Random(seed)
    words = command(folder, f"--mesh={mesh}", "--restarts=1000", "--spares=1")
    killed = 0
    with subprocess.Popen(
        words, env=environment(folder, gang), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as running:  # fmt: skip
        record = folder / "run/metrics.jsonl"
        deadline = time.monotonic() + PATIENCE_S
        while running.poll() is None and killed < kills and time.monotonic() < deadline:
            if not record.exists() or record.stat().st_size == 0:
                time.sleep(0.01)
                continue
            if len(workers_of(gang)) < size_of(mesh):
                time.sleep(0.01)
                continue
            time.sleep(chance.uniform(0.0, 0.6))
            workers = workers_of(gang)
            if workers:
                try:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
        output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, errors + output
    return output, killed


@pytest.mark.parametrize(
    ("mesh", "kills"), [("dp=2", 4), ("zero1=2", 4), ("fsdp=2", 4), ("dp=2,tp=2", 2)]
)
def test_workers_that_are_killed_are_replaced_and_no_bit_is_lost(
    gang: Marked, tmp_path: Path, mesh: str, kills: int
) -> None:
    calm = tmp_path / "calm"
    calm.mkdir()
    done = subprocess.run(
        command(calm, "--local", f"--mesh={mesh}"),
        env=environment(calm, gang), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    (expected,) = told(done.stdout, "end")
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        output, killed = train_killed(folder, gang, mesh, kills, seed)
        assert killed > 0, output
        assert told(output, "end")[-1] == expected, (mesh, seed, killed)
        assert outcome(folder) == outcome(calm), (mesh, seed, killed)
        for file in ("weights.safetensors", "state.safetensors"):
            assert (folder / "run" / file).read_bytes() == (calm / "run" / file).read_bytes()
