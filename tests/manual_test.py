"""What the manuals of models, training and generation tell to type can be typed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from model_tools import ROOT
from tutti import nn

TEXT = "ROMEO:\nBut, soft! what light through yonder window breaks?\n" * 60
# So that it does not take minutes.
SHORT = ("--steps=2", "--optim.rate.warm_up=1", "--threads=1", "--evaluate_batches=1")


def python_block(manual: str) -> str:
    text = (ROOT / "docs" / manual).read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return block


def commands_of(manual: str) -> list[list[str]]:
    """Lines that begin with tutti, as what a person types."""
    found = re.findall(r"^    (tutti .*)$", (ROOT / "docs" / manual).read_text(), re.MULTILINE)
    return [shlex.split(line) for line in found]


def typed(words: list[str], folder: Path) -> str:
    program = str(ROOT / "build/release/tutti")
    # What runs on this machine besides is not asked.
    local = ["--local"] if words[1] == "train" else []
    rest = [*words[2:], *(SHORT if words[1] == "train" else ())]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
    }
    done = subprocess.run(
        [program, words[1], *local, *rest],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shakespeare.txt").write_text(TEXT)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_training_is_as_its_manual_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, *by_workers = commands_of("training.md")
    for words in by_workers:
        assert "4 workers" in typed(words, folder)
    assert "validation loss" in typed(command, folder)
    assert {"weights.safetensors", "config.toml"} <= {f.name for f in Path("runs/a").iterdir()}
    Path("runs/a").rename("runs/b")
    monkeypatch.syspath_prepend(ROOT / "examples")
    block = python_block("training.md")
    for long, short in (("steps=2000", "steps=2"), ("warm_up=100", "warm_up=1")):
        assert long in block
        block = block.replace(long, short)
    exec(compile(block, "training.md", "exec"), {})
    assert Path("runs/a/weights.safetensors").exists()


def test_generation_is_as_its_manual_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, generate = commands_of("generation.md")
    typed(train, folder)
    text = typed(generate, folder)
    assert text.startswith("ROMEO:") and len(text) == len("ROMEO:") + 400 + 1
    exec(compile(python_block("generation.md"), "generation.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(" tokens") and lines[-2].endswith(" None")


def test_the_manual_of_models_has_every_function() -> None:
    text = (ROOT / "docs/models.md").read_text()
    code = re.findall(r"```.*?```|`[^`]*`", text, re.DOTALL)
    told = set(re.findall(r"\w+", " ".join(code)))
    functions = {name for name in nn.__all__ if name.islower()}
    of_models = {"f32", "i32", "parameter", "zeros", "ones", "uniform"}
    assert functions - told - of_models == set()
