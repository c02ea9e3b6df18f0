"""Training on one process, as a researcher does it: from Python, and by `tutti train`."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tutti
from model_tools import ROOT, example
from safetensors.numpy import load_file, save_file
from tutti import nn

gpt = example("gpt")
TUTTI = ROOT / "build/release/tutti"
# Small enough that a step takes a millisecond.
SIZES = ("--model.layers=2", "--model.heads=2", "--model.width=16", "--batch=4", "--context=8")
SMALL = gpt.ModelConfig(layers=2, heads=2, width=16, context=8, vocabulary=5)
TEXT = "abcde" * 100 + "edcba" * 100


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def trainer(text: Path, **options: Any) -> tutti.Trainer:
    data = tutti.data.text(text)
    optim = tutti.optim.AdamW(tutti.optim.cosine(1e-2, warm_up=3), max_norm=1.0)
    options = {"steps": 8, "batch": 4, "context": 8, "threads": 1, **options}
    return tutti.Trainer(gpt.GPT(SMALL), data=data, optim=optim, **options)


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def run_example(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples/gpt.py", *SIZES, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_model_learns_and_leaves_its_run_in_a_folder(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs/a"
    it = trainer(text, steps=60, out=out, evaluate_every=30)
    loss = it.fit()
    assert loss is not None and loss < 1.0 < np.log(5)
    printed = capsys.readouterr().out
    assert "parameters" in printed and "step 60  validation loss" in printed
    assert re.search(r"step  1/60  loss \d\.\d+  [\d,]+ tokens/s", printed)
    names = {file.name for file in out.iterdir()}
    files = {"config.toml", "metrics.jsonl", "model.json", "tokenizer.json"}
    files |= {"events.out.tfevents.000001", "status.json"}
    assert names == files | {"state.safetensors", "weights.safetensors"}
    records = lines_of((out / "metrics.jsonl").read_text())
    assert {1, 10, 20, 30, 40, 50, 60} <= {r["step"] for r in records if "loss" in r}
    assert records[-1]["validation_loss"] == loss
    assert records[-2]["of_peak"] > 0 and records[-2]["memory_bytes"] > 0
    assert tutti.data.load_tokenizer(out).decode([0, 4]) == "ae"
    assert "steps = 60" in (out / "config.toml").read_text()


def test_a_run_that_was_ended_and_resumed_has_the_bits_of_one_that_was_not(
    text: Path, tmp_path: Path
) -> None:
    whole = trainer(text, steps=12)
    while whole.steps_done < 12:
        whole.step()
    first = trainer(text, steps=12)
    while first.steps_done < 5:
        first.step()
    (tmp_path / "run").mkdir()
    first.save(tmp_path / "run/state.safetensors")
    with pytest.raises(tutti.Error, match="has a run already"):
        trainer(text, steps=12, out=tmp_path / "run")
    rest = trainer(text, steps=12, out=tmp_path / "run", resume=True)
    assert rest.steps_done == 5
    rest.fit()
    assert rest.digest == whole.digest
    with pytest.raises(tutti.Error, match="nothing was saved"):
        trainer(text, out=tmp_path / "nowhere", resume=True)


def test_bits_follow_from_the_seed_not_from_threads(text: Path) -> None:
    def after(**options: Any) -> int:
        it = trainer(text, **options)
        for _ in range(4):
            it.step()
        return it.digest

    assert after(threads=1) == after(threads=2)
    assert after(seed=1) != after(seed=2)


def test_atoms_part_a_batch(text: Path) -> None:
    whole, parted = trainer(text, batch=4), trainer(text, batch=4, atom=1)
    losses = [[it.step().loss for _ in range(4)] for it in (whole, parted)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    with pytest.raises(tutti.Error, match="cannot be parted into atoms of 3"):
        trainer(text, batch=4, atom=3)


def test_other_programs_read_our_weights_and_we_theirs(text: Path, tmp_path: Path) -> None:
    it = trainer(text)
    it.step()
    it.save_weights(tmp_path / "w.safetensors")
    arrays = load_file(tmp_path / "w.safetensors")
    assert arrays["h.1.attn.c_attn.weight"].shape == (16, 48)
    assert arrays["wte.weight"].dtype == np.float32
    stacked = nn.initial_weights(it.model)
    assert sum(each.size for each in arrays.values()) == sum(s.size for s in stacked.values())
    save_file(arrays, tmp_path / "theirs.safetensors", metadata={"made": "elsewhere"})
    before = it.evaluate()
    for _ in range(3):
        it.step()
    assert it.evaluate() != before
    it.load_weights(tmp_path / "theirs.safetensors")
    assert it.evaluate() == before and it.steps_done == 0
    again = trainer(text, weights=tmp_path / "theirs.safetensors")
    assert again.evaluate() == before


def test_files_that_are_broken_or_of_another_model_are_refused(text: Path, tmp_path: Path) -> None:
    it = trainer(text)
    path = tmp_path / "w.safetensors"
    it.save_weights(path)
    arrays = load_file(path)
    save_file({k: v for k, v in arrays.items() if k != "h.1.ln_1.weight"}, path)
    with pytest.raises(tutti.Error, match=r"no tensor 'h\.1\.ln_1\.weight' \(but 'h\.\d\.ln_"):
        it.load_weights(path)
    save_file({**arrays, "wte.weight": arrays["wte.weight"][:, :8].copy()}, path)
    with pytest.raises(tutti.Error, match=r"'wte\.weight' is f32\[5, 8\], the model has"):
        it.load_weights(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(tutti.Error, match="cut short"):
        it.load_weights(path)
    with pytest.raises(tutti.Error, match="No such file"):
        it.load_weights(tmp_path / "none.safetensors")


class Diverging(nn.Module):
    """Its loss is the logarithm of a weight that the first step makes negative."""

    def __init__(self) -> None:
        self.weight = nn.parameter(row=3, init=nn.ones)

    def __call__(self, tokens: nn.Tensor, targets: nn.Tensor) -> nn.Tensor:
        return nn.log(self.weight).mean()


def test_a_loss_that_is_not_finite_is_blamed_on_the_line_that_made_it(text: Path) -> None:
    line = Diverging.__call__.__code__.co_firstlineno + 1
    it = tutti.Trainer(
        Diverging(),
        data=tutti.data.text(text),
        optim=tutti.optim.AdamW(2.0),
        steps=5,
        batch=1,
        context=2,
    )
    it.step()
    before = it.digest
    with pytest.raises(tutti.Error, match=rf"log of .*trainer_test\.py:{line} made nan"):
        it.step()
    assert it.digest == before and it.steps_done == 1


def test_a_model_that_does_not_fit_says_so_before_it_runs(text: Path) -> None:
    data = tutti.data.text(text)
    large = gpt.ModelConfig(layers=2000, heads=1, width=8192, vocabulary=5, context=8)
    with pytest.raises(tutti.Error, match=r"does not fit: training it takes .*TiB \(weights"):
        tutti.Trainer(gpt.GPT(large), data=data, steps=1, batch=1, context=8)


def test_the_same_model_in_cpp_has_the_same_bits(text: Path, tmp_path: Path) -> None:
    words = [f"--text={text}", "--steps=120", "--threads=1"]
    program = [ROOT / "build/release/examples/gpt", *SIZES, *words]
    asked = ["--prompt=abc", "--tokens=40"]
    theirs = subprocess.run([*program, *asked], capture_output=True, text=True, timeout=60)
    assert theirs.returncode == 0, theirs.stderr
    ours = lines_of(run_example(*words, "--json", f"--out={tmp_path / 'run'}").stdout)
    assert ours[-1]["event"] == "end"
    assert f"digest {ours[-1]['digest']}\n" in theirs.stdout
    last = next(each for each in reversed(ours) if each["event"] == "step")
    assert f"loss {last['loss']:.4f}" in theirs.stdout
    generator = tutti.Generator.load(tmp_path / "run")
    assert theirs.stdout.endswith(f"abc{generator.text('abc', tokens=40)}\n")
    for word, said in (
        ("--stepz=1", "there is no option --stepz; did you mean --steps?"),
        ("--steps=many", "--steps=many: this is no number"),
        ("--model.heads=3", "a width of 16 cannot be parted into 3 heads"),
        ("--prompt=xyz", "the prompt has 'x', which the text has not"),
    ):
        told = subprocess.run([*program, word], capture_output=True, text=True)
        assert told.returncode == 1 and said in told.stderr


def test_tutti_train_runs_a_script_in_the_vault(text: Path, tmp_path: Path) -> None:
    command = [TUTTI, "train", "--local", ROOT / "examples/gpt.py", f"--text={text}", *SIZES]
    options = ["--steps=120", "--threads=1", f"--out={tmp_path / 'run'}"]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "step 120/120" in done.stdout and not done.stdout.startswith("[0]")
    alone = lines_of(run_example(f"--text={text}", "--steps=120", "--json").stdout)
    state = load_file(tmp_path / "run/state.safetensors")
    assert "first/h.0.mlp.c_fc.weight" in state
    resumed = trainer(text, resume=True, out=tmp_path / "run", steps=120)
    assert resumed.steps_done == 120
    assert f"{resumed.digest:016x}" == alone[-1]["digest"]


def test_progress_is_one_live_line_on_a_terminal(text: Path, tmp_path: Path) -> None:
    command = [TUTTI, "train", "--local", ROOT / "examples/gpt.py", f"--text={text}", *SIZES]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "xterm",
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    words = ["--steps=300", "--optim.rate.warm_up=10", "--threads=1"]
    run = subprocess.Popen([*command, *words], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end, on a terminal
        while more := os.read(ours, 4096):
            said += more
    os.close(ours)
    assert run.wait() == 0
    lines = said.decode().replace("\r\n", "\n").split("\n")
    passing = [line for line in lines if "step  10/300" in line]
    assert len(passing) == 1, said
    for state in passing[0].split("\r")[:-1]:
        assert state.startswith("\x1b[Kstep ") and len(state) - len("\x1b[K") < 60
    assert passing[0].split("\r")[-1].startswith("\x1b[Kstep 2")  # of 250, and its evaluation
    assert lines[-1] == "" and "finished" in lines[-2]


def test_mistakes_on_the_command_line_are_told(text: Path) -> None:
    done = run_example(f"--text={text}", "--stepz=3")
    assert done.returncode == 2 and "did you mean --steps?" in done.stderr
    done = run_example()
    assert done.returncode == 1 and "say what to learn from" in done.stderr
    for wrong, said in (
        ("--model.layers=0", "model.layers is 0; use 1 or more"),
        ("--model.heads=3", "a model.width of 16 with 3 heads and 3 key_heads: each has to be a"),
        ("--batch=0", "a batch of 0 samples; use 1 or more"),
        ("--threads=-1", "threads is -1, and there are"),
        ("--threads=100000", "threads is 100000, and there are"),
        ("--out=/proc/none/run", "the run cannot be kept in /proc/none/run: /proc/none: No such"),
        ("--seed=-1", "seed is -1; use 0 to below 2^63"),
        ("--evaluate_every=-5", "evaluate_every is -5; use 0 or more"),
        ("--model.vocabulary=6", "model.vocabulary is 6, and these data have 5 tokens: leave it"),
        ("--model.context=7", "model.context is 7, and the run has sequences of 8: leave it out"),
        ("--train=tokens.bin", "learn from --text or from --train, not from both"),
    ):
        done = run_example(f"--text={text}", wrong)
        assert done.returncode == 1 and done.stderr.startswith(f"gpt.py: {said}")
    with pytest.raises(tutti.Error, match="a context of 0 tokens; use 1 or more"):
        trainer(text, context=0)
    done = run_example("--text=none.txt")
    assert done.stderr == "gpt.py: none.txt: No such file or directory\n"
    for words, said in (
        (["train"], "no file to train with"),
        (["train", "--workers", "0", "x.py"], "--workers 0: write how many"),
        (["train", "job.toml"], "`tutti run`"),
    ):
        told = subprocess.run([TUTTI, *words], capture_output=True, text=True, timeout=60)
        assert told.returncode == 2 and said in told.stderr


def test_sizes_that_are_given_are_those_of_the_model(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    short = ("--steps=1", "--optim.rate.warm_up=0")
    words = ["--model.vocabulary=5", "--model.context=12", *short, f"--out={run}"]
    done = run_example(f"--text={text}", *words)
    assert done.returncode == 0, done.stderr
    assert load_file(run / "weights.safetensors")["wpe.weight"].shape == (12, 16)
    again = run_example(
        f"--text={text}", f"--config={run / 'config.toml'}", "--resume", "--steps=2"
    )
    assert again.returncode == 0, again.stderr
    tokens = tmp_path / "train.bin"
    tokens.write_bytes(np.arange(400, dtype=np.uint16).tobytes())
    done = run_example(f"--train={tokens}", *short, f"--out={tmp_path / 'other'}")
    assert done.returncode == 0, done.stderr
    shape = load_file(tmp_path / "other/weights.safetensors")["wte.weight"].shape
    assert shape == (50257, 16)  # of GPT-2, whose files of tokens most are


def test_a_folder_is_no_file_of_weights(text: Path, tmp_path: Path) -> None:
    it = trainer(text)
    for read in (it.load, it.load_weights, tutti.data.tokens):
        with pytest.raises(tutti.Error, match=f"{tmp_path} is a folder; give a file"):
            read(tmp_path, **({"vocabulary": 5} if read is tutti.data.tokens else {}))
