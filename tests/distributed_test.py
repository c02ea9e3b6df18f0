"""Training by several workers: one script, any number of processes, the same bits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Machine
from fabric_tools import ENVIRONMENT
from run_tools import PATIENCE_S, ROOT, TUTTI, Marked

# Small enough that a step takes a millisecond.
OPTIONS = (
    *("--model.layers=2", "--model.heads=2", "--model.width=16", "--batch=16", "--context=8"),
    *("--lanes=8", "--steps=6", "--evaluate_every=3", "--optim.rate.rate=1e-2", "--threads=1"),
    *("--optim.rate.warm_up=2", "--optim.rate.least=1e-3", "--json"),
)
PATH = {"PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(("abcde" * 100 + "edcba" * 100) * 2)
    return file


def train(text: Path, *words: str | Path, how: str = "--local") -> subprocess.CompletedProcess[str]:
    command = [TUTTI, "train", how, ROOT / "examples/gpt.py", f"--text={text}", *OPTIONS, *words]
    return subprocess.run(
        command, env=ENVIRONMENT | PATH, capture_output=True, text=True, timeout=PATIENCE_S
    )


def told(output: str) -> list[dict[str, Any]]:
    """What the run told of its steps, whoever printed it; without what takes time."""
    events = []
    for line in output.splitlines():
        event = json.loads(line)
        if event["event"] == "output":
            event = json.loads(event["line"])
        if event["event"] in ("step", "evaluate", "end"):
            kept = ("event", "step", "loss", "norm", "validation_loss", "digest")
            events.append({key: event[key] for key in kept if key in event})
    return events


def outcome(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr + done.stdout
    events = told(done.stdout)
    assert [event["event"] for event in events[-2:]] == ["evaluate", "end"]
    return events


def test_losses_and_weights_do_not_depend_on_the_number_of_workers(text: Path) -> None:
    alone = outcome(train(text))
    for workers in (2, 3, 4, 8):
        assert outcome(train(text, "--workers", str(workers))) == alone
    assert outcome(train(text, "--mesh", "dp=2")) == alone
    other = outcome(train(text, "--lanes=4"))
    assert other[-1]["digest"] != alone[-1]["digest"]
    # One for each, if nothing is said.
    assert outcome(train(text, "--lanes=0", "--workers=4")) == other


# Wide enough that weights are parted.
WIDE = ("--model.width=128", "--lanes=4", "--steps=4", "--optim.rate.warm_up=1")


def test_shards_of_weights_and_moments_change_no_bits(text: Path) -> None:
    alone = outcome(train(text, *WIDE))
    for mesh in ("dp=2", "zero1=2", "zero1=3", "fsdp=2", "fsdp=3", "fsdp=4"):
        assert outcome(train(text, *WIDE, f"--mesh={mesh}")) == alone, mesh


@pytest.mark.parametrize("mesh", ["zero1=2", "fsdp=3"])
def test_shards_are_saved_as_one_file_and_dealt_anew(text: Path, tmp_path: Path, mesh: str) -> None:
    whole = outcome(train(text, *WIDE))
    out = f"--out={tmp_path / 'run'}"
    outcome(train(text, *WIDE, out, "--steps=2", "--optim.rate.end=4", f"--mesh={mesh}"))
    rest = outcome(train(text, *WIDE, out, "--resume", "--mesh=fsdp=2"))
    assert rest[-1] == whole[-1]


# Two orders of the same sums lead as far apart; docs/training.md.
FAR = {"step": 0, "loss": 1e-5, "validation_loss": 1e-5, "norm": 1e-4}


def check_close(events: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    for event, other in zip(events, others, strict=True):
        for name in event.keys() - {"digest", "event"}:
            assert event[name] == pytest.approx(other[name], rel=FAR[name]), name


def test_axes_that_divide_products_give_the_same_bits_each_time(text: Path) -> None:
    alone = outcome(train(text, *WIDE))
    divided = outcome(train(text, *WIDE, "--mesh=tp=2"))
    check_close(divided, alone)
    assert divided[-1]["digest"] != alone[-1]["digest"]
    for mesh in ("tp=2", "dp=2,tp=2", "tp=2,zero1=2", "fsdp=2,tp=2"):
        assert outcome(train(text, *WIDE, f"--mesh={mesh}")) == divided, mesh
    check_close(outcome(train(text, *WIDE, "--mesh=tp=2", "--rules=time=,vocab=")), alone)


def test_axes_that_divide_products_stay_near_the_run_that_does_not(text: Path) -> None:
    words = ("--steps=50", "--evaluate_every=10")
    check_close(outcome(train(text, *words, "--mesh=tp=2")), outcome(train(text, *words)))


def test_parts_of_products_are_saved_as_one_file_and_dealt_anew(text: Path, tmp_path: Path) -> None:
    words = (*WIDE, "--optim.rate.end=4", f"--out={tmp_path / 'run'}")
    whole = outcome(train(text, *WIDE, "--mesh=tp=2"))
    outcome(train(text, *words, "--steps=2", "--mesh=dp=2,tp=2"))
    (tmp_path / "run").rename(tmp_path / "kept")
    for mesh, same in (("tp=2", True), ("fsdp=2,tp=2", True), ("dp=2", False)):
        shutil.copytree(tmp_path / "kept", tmp_path / "run")
        rest = outcome(train(text, *words, "--resume", f"--mesh={mesh}"))
        check_close(rest[-2:], whole[-2:])
        assert (rest[-1] == whole[-1]) == same, mesh
        shutil.rmtree(tmp_path / "run")


def test_a_run_is_saved_once_and_goes_on_with_another_number_of_workers(
    text: Path, tmp_path: Path
) -> None:
    whole = outcome(train(text))
    out = f"--out={tmp_path / 'run'}"
    outcome(train(text, out, "--steps=3", "--optim.rate.end=6", "--workers=4"))
    files = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"state.safetensors", "weights.safetensors", "config.toml", "metrics.jsonl"} <= files
    rest = outcome(train(text, out, "--resume", "--workers=3"))
    assert rest[-1] == whole[-1]


def test_under_agents_it_is_a_job_with_the_same_bits(machine: Machine, text: Path) -> None:
    alone = outcome(train(text))
    machine.environment |= ENVIRONMENT | PATH | {"TUTTI_HOME": str(machine.home)}
    words = (ROOT / "examples/gpt.py", f"--text={text}", *OPTIONS)
    done = machine("train", "--cluster", *words, "--workers", "4", "--mesh", "dp=4")
    assert outcome(done) == alone
    divided = outcome(train(text, "--mesh=tp=2"))
    done = machine("train", "--cluster", *words, "--workers", "4", "--mesh", "dp=2,tp=2")
    assert outcome(done) == divided


def test_a_worker_that_is_killed_is_replaced_and_no_step_is_lost(
    gang: Marked, text: Path, tmp_path: Path
) -> None:
    words = [*OPTIONS, "--model.width=64", "--lanes=2", "--steps=800", "--evaluate_every=0"]
    words = [str(ROOT / "examples/gpt.py"), f"--text={text}", *words, "--mesh=dp=2,tp=2"]
    undisturbed = outcome(train(text, *words[2:]))
    job = tmp_path / "gpt.toml"
    job.write_text(f"""
name = "gpt"
[gang.worker]
count = 4
command = {json.dumps([sys.executable, *words])}
strategy = "one_for_one"
spares = 1
preload = ["tutti"]
restarts = {{ killed = 1000, delay = "0s" }}
""")
    environment = ENVIRONMENT | PATH | gang.environment
    environment |= {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "TUTTI_HOME": str(tmp_path / "home")}
    with subprocess.Popen(
        [TUTTI, "run", job], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as running:  # fmt: skip
        killed = 0
        deadline = time.monotonic() + PATIENCE_S
        while running.poll() is None and killed < 2 and time.monotonic() < deadline:
            time.sleep(0.5)
            workers = [line for line in gang.living() if "gpt.py" in line]
            if len(workers) >= 4:
                os.kill(int(workers[killed].split()[0]), signal.SIGKILL)
                killed += 1
        output, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, output
    assert killed >= 1, output
    assert f'"digest": "{undisturbed[-1]["digest"]}"' in output, output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--workers=4", "--mesh=dp=2"), "the mesh dp=2 is of 2 workers, not 4"),
        (("--workers=2", "--mesh=dq=2"), "nothing is split along dq"),
        (("--mesh=dp=2,fsdp=2",), "and can along one axis so far: fsdp=4"),
        (("--workers=3", "--mesh=dp=2,tp=2"), "the mesh dp=2,tp=2 is of 4 workers, not 3"),
        (("--mesh=tp=4",), "heads=2 does not divide by the 4 ranks of tp; make it a multiple"),
        (("--mesh=tp=2", "--context=9"), "time=9 does not divide by the 2 ranks of tp"),
        (("--mesh=tp=2", "--rules=vocabulary=tp"), "no tensor has a dimension vocabulary"),
        (("--mesh=tp=2", "--lanes=1", "--rules=vocab=pp"), "has no axis `pp`"),
        (("--workers=2", "--lanes=1"), "2 workers cannot share 1 lane: each takes one"),
        (("--workers=2", "--lanes=3"), "a batch of 16 samples cannot be dealt to 3 lanes"),
        (("--workers=2", "--atom=4"), "8 lanes of 2 samples each cannot be parted into atoms of 4"),
        (("--workers=0",), "--workers 0: write how many to start"),
        (("--workers=2", "--restarts=1"), "with --local nobody is started again"),
        (("--spares=many",), "--spares many: write a number, 0 to 256: --spares 1"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_what_to_say_instead(
    text: Path, words: tuple[str, ...], error: str
) -> None:
    done = train(text, *words)
    assert done.returncode != 0
    assert error in done.stderr + done.stdout


def test_a_worker_with_other_options_or_code_is_named_before_the_first_step(
    text: Path, tmp_path: Path
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(f"""
import os, sys
sys.path.insert(0, {str(ROOT / "examples")!r})
import gpt, tutti
odd = sys.argv[1] if os.environ["RANK"] == "2" else ""
data = tutti.data.text({str(text)!r})
config = gpt.ModelConfig(layers=2, heads=2, width=16, context=8, vocabulary=5,
                         activation="gelu" if odd == "code" else "gelu_tanh")
optim = tutti.optim.AdamW(0.1 if odd == "options" else 0.2)
run = {{"batch": 4, "context": 8, "lanes": 4, "threads": 1, "seed": 1 if odd == "seed" else 0}}
trainer = tutti.Trainer(gpt.GPT(config), data=data, optim=optim, **run)
try:
    trainer.step()
except tutti.Error as error:
    sys.exit(f"{{trainer.steps_done}} steps: {{error}}")
""")
    for which, words in (
        ("code", "another model"),
        ("options", "other options"),
        ("seed", "other options"),
    ):
        command = [TUTTI, "train", "--local", "--workers=3", script, which]
        done = subprocess.run(
            command, env=ENVIRONMENT | PATH, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode != 0
        assert f"0 steps: rank 2 was started with {words} than the others" in done.stderr
