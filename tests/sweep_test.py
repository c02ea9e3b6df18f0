"""`tutti sweep`: every combination, each as a run of its own, through whatever happens."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Machine
from fabric_tools import ENVIRONMENT
from run_tools import MARK, PATIENCE_S, ROOT, TUTTI, Marked, marked, wait_until
from tutti import runs
from tutti._grid import grid_of, options_of

SIZES = (
    *("--text=text.txt", "--layers=1", "--heads=2", "--width=16", "--batch=4", "--context=8"),
    *("--evaluate_every=0", "--warm_up=3", "--least=1e-5", "--max_norm=0"),
)
PATH = {"PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}
GPT = str(ROOT / "examples/gpt.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("abcde" * 100 + "edcba" * 100)
    return tmp_path


def sweep(
    folder: Path, *words: str, file: str = GPT, before: tuple[str, ...] = ("--local",)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUTTI, "sweep", *before, file, *SIZES, *words],
        cwd=folder,
        env=ENVIRONMENT | PATH | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def statuses(folder: Path) -> dict[str, str]:
    return {run.name: run.status for run in runs.find(folder)}


def events_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_combination_is_a_run_and_one_that_fails_is_named(folder: Path) -> None:
    words = ("--lr", "1e-2,1e38", "--seed", "0..1", "--parallel=2", "--steps=20")
    done = sweep(folder, *words)
    assert done.returncode == 1
    out = folder / "runs/gpt-sweep"
    good, bad = ("rate=0.01,seed=0", "rate=0.01,seed=1"), ("rate=1e+38,seed=0", "rate=1e+38,seed=1")
    assert statuses(out) == dict.fromkeys(good, "done") | dict.fromkeys(bad, "failed")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["run", "status", "step", "loss", "validation", "tokens/s", "when"]
    assert "4 experiments: 2 done, 2 failed" in lines
    assert all(any(line.startswith(f"failed {each}: step") for line in lines) for each in bad)
    assert "20/20" in lines[1] and max(len(line) for line in lines[:5]) <= 80
    assert "its loss is nan" in (out / bad[0] / "output.txt").read_text()
    assert f"{bad[0]} failed: step" in done.stderr
    configs = {run.name: run.config for run in runs.find(out)}
    assert configs[good[1]]["seed"] == 1 and configs[good[1]]["optim.rate.rate"] == 0.01
    losses = {run.name: run.validation_loss for run in runs.find(out)}
    assert losses[good[0]] != losses[good[1]]


def test_the_same_again_leaves_what_is_done_and_tries_what_failed(folder: Path) -> None:
    words = ("--seed=0,1", "--steps=20", "--out=out", "--json")
    assert sweep(folder, *words).returncode == 0
    before = {file: file.stat().st_mtime_ns for file in (folder / "out").rglob("*.safetensors")}
    experiment = folder / "out/seed=1/experiment.json"
    told = json.loads(experiment.read_text()) | {"status": "failed", "why": "bad luck"}
    experiment.write_text(json.dumps(told | {"time": time.time() + 1}))
    (folder / "out/seed=1/state.safetensors").unlink()
    done = sweep(folder, *words, "--resume")
    assert done.returncode == 0
    events = events_of(done)
    assert [each["event"] for each in events] == ["start", "begin", "end", "finish"]
    assert events[1] == {"event": "begin", "run": "seed=1", "resumed": False}
    assert events[2]["status"] == "done" and events[3]["done"] == 2
    assert set(statuses(folder / "out").values()) == {"done"}
    after = {file: file.stat().st_mtime_ns for file in (folder / "out").rglob("*.safetensors")}
    assert [f for f in before if "seed=0" in str(f) and after[f] != before[f]] == []


def digests(folder: Path) -> dict[str, bytes]:
    return {
        file.parent.name: file.read_bytes() for file in sorted(folder.rglob("weights.safetensors"))
    }


def test_a_sweep_that_is_killed_takes_its_experiments_along_and_goes_on_to_the_bit(
    folder: Path, gang: Marked
) -> None:
    words = (*SIZES, "--seed=0..2", "--parallel=2", "--steps=3000", "--save_every=50")
    assert sweep(folder, *words[len(SIZES) :], "--out=whole").returncode == 0
    process = subprocess.Popen(
        [TUTTI, "sweep", "--local", GPT, *words, "--out=out"],
        cwd=folder,
        env=ENVIRONMENT | PATH | {MARK: gang.mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    saved = [folder / f"out/seed={seed}/state.safetensors" for seed in (0, 1)]
    wait_until(lambda: all(each.exists() for each in saved), "two experiments save")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not marked(gang.mark), "nothing of it is left")
    assert "done" not in {statuses(folder / "out")[f"seed={seed}"] for seed in (0, 1)}
    done = sweep(folder, *words[len(SIZES) :], "--out=out", "--json")
    assert done.returncode == 0, done.stdout
    begun = {each["run"]: each["resumed"] for each in events_of(done) if each["event"] == "begin"}
    assert begun == {"seed=0": True, "seed=1": True, "seed=2": False}
    assert (
        digests(folder / "out") == digests(folder / "whole") and len(digests(folder / "out")) == 3
    )
    for seed in range(3):
        steps = [r["step"] for r in runs.metrics(folder / f"out/seed={seed}") if "loss" in r]
        assert steps == [1, *range(10, 3001, 10)]


def test_who_is_told_to_end_ends_its_experiments_which_have_not_failed(
    folder: Path, gang: Marked
) -> None:
    process = subprocess.Popen(
        [TUTTI, "sweep", "--local", GPT, *SIZES, "--seed=0,1", "--steps=1000000", "--out=out"],
        cwd=folder,
        env=ENVIRONMENT | PATH | {MARK: gang.mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = folder / "out/seed=0/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, "it trains")
    busy = sweep(folder, "--seed=0,1", "--steps=1000000", "--out=out")
    assert busy.returncode == 1 and "another `tutti sweep` works in out" in busy.stderr
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "2 experiments: 1 interrupted, 1 queued" in out
    assert "the same command goes on" in errors
    assert statuses(folder / "out") == {"seed=0": "interrupted"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--ratee=1",), "there is no key ratee; did you mean --rate?"),
        (("--lr=1", "--optim.rate.rate=2"), "--optim.rate.rate is given twice"),
        (("--lr=1,x",), "--optim.rate.rate: 'x' is not a number (float)"),
        (("--seed=3..1",), "write a range upwards"),
        (("--seed=1,01",), "seed=1 is there twice"),
        (("--seed=0..99999",), "write a range upwards, 0..3, of up to 10,000"),
        (("--seed=0..999", "--beta1=1,2,3,4,5,6,7,8,9,10,11"), "11,000 experiments"),
        (("--parallel=none",), "--parallel none: write a number"),
        (("--seed",), "--seed needs a value"),
        (("x",), "'x' is no option"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    folder: Path, words: tuple[str, ...], error: str
) -> None:
    done = sweep(folder, *words)
    assert done.returncode == 2 and error in done.stderr and not (folder / "runs").exists()


SCRIPT = """
from __future__ import annotations
import tutti
from dataclasses import dataclass, field

@dataclass
class Inner:
    end: int = 1
    sizes: list[int] = field(default_factory=list)

@dataclass
class Config(tutti.Run):
    end_of: Inner = field(default_factory=Inner)
    data: Inner = field(default_factory=Inner)
    flag: bool = False

tutti.configure(Config, presets={"a": {"steps": 7}, "b": {"steps": 9}})
raise SystemExit("never")
"""


def test_a_grid_is_made_of_any_keys_and_presets(folder: Path) -> None:
    script = folder / "mine.py"
    script.write_text(SCRIPT)
    words = ["--preset=a,b", "--flag", "--data.sizes=1,2;3", "--data.end=0..1"]
    grid = grid_of(script, list(options_of(words)))
    assert grid.keys == ["preset", "data.sizes", "data.end"] and len(grid.experiments) == 8
    first = grid.experiments[0]
    assert first.name == "preset=a,data.sizes=1,2,data.end=0"
    assert first.config["steps"] == 7 and first.config["data.sizes"] == [1, 2]
    assert first.config["flag"] is True and "out" not in first.config
    done = sweep(folder, "--end=1,2", file="mine.py")
    assert "there is no key text" in done.stderr
    environment = ENVIRONMENT | PATH
    told = subprocess.run(
        [TUTTI, "sweep", "mine.py", "--end=1,2"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "--end may be --end_of.end or --data.end: write which" in told.stderr
    script.write_text("print('no keys')")
    assert "without calling tutti.configure" in sweep(folder, file="mine.py").stderr


def test_a_folder_of_another_sweep_is_left_alone(folder: Path) -> None:
    assert sweep(folder, "--seed=0,1", "--steps=5", "--out=out").returncode == 0
    done = sweep(folder, "--seed=0,1", "--steps=6", "--out=out")
    assert done.returncode == 1
    assert "is of another configuration: steps was 5 and is 6" in done.stderr


def test_workers_and_timeouts_are_passed_on(folder: Path) -> None:
    words = ("--seed=0", "--steps=5", "--lanes=2", "--mesh", "dp=2", "--out=out")
    assert sweep(folder, *words).returncode == 0
    assert runs.metrics(folder / "out/run")[-2]["workers"] == 2
    late = sweep(folder, "--steps=1000000", "--out=late", before=("--local", "--timeout=1s"))
    assert late.returncode == 1
    assert "failed run: its time was up" in late.stdout


def test_on_a_cluster_each_is_a_job(machine: Machine, folder: Path) -> None:
    machine.environment |= ENVIRONMENT | PATH | {"TUTTI_HOME": str(machine.home)}
    text = f"--text={folder / 'text.txt'}"
    words = (GPT, *SIZES[1:], text, "--seed=0,1", "--steps=10", "--parallel=2")
    done = machine("sweep", "--cluster", *words, f"--out={folder / 'out'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(folder / "out") == {"seed=0": "done", "seed=1": "done"}
    jobs = json.loads(machine("jobs", "--all", "--json").stdout)
    assert len(jobs) == 2, jobs
