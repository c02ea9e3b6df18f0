"""Configurations: from the command line, files and presets, with types that are checked."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import tutti
from model_tools import ROOT
from tutti import config, optim


@dataclass
class Model:
    layers: int = 12  # how deep it is
    width: int = 64
    kind: Literal["gpt", "mlp"] = "gpt"
    key_heads: int | None = None


@dataclass
class Config:
    # Where results go,
    # and checkpoints.
    out: Path = Path("run")
    model: Model = field(default_factory=Model)
    small: Model = field(default_factory=lambda: Model(layers=2))
    rate: optim.Schedule = field(default_factory=optim.Schedule)
    seeds: list[int] = field(default_factory=list)
    name: str = "x"
    quick: bool = False

    def __post_init__(self) -> None:
        if self.model.width % 2:
            raise ValueError(f"width {self.model.width} is odd")


PRESETS = {"tiny": {"model.layers": 1, "model.width": 8, "rate.rate": 1}}


def parse(*words: str) -> Config:
    return config.parse(Config, words, presets=PRESETS)


def test_values_come_from_words_as_their_types_say() -> None:
    read = parse(
        *[
            "--model.layers=24",
            "--model.key_heads",
            "4",
            "--rate.rate=3e-4",
            "--seeds=1,2",
            "--quick",
        ],
        *["--model.kind=mlp", "--out=a/b", "--name=", "--rate.decline=cosine", "--rate.end=10"],
    )
    assert read.model == Model(24, 64, "mlp", 4)
    assert read.rate == optim.Schedule(3e-4, end=10, decline="cosine")
    assert (read.seeds, read.quick, read.out, read.name) == ([1, 2], True, Path("a/b"), "")
    assert parse() == Config()
    assert parse().small.layers == 2  # the default of the outer class counts
    assert parse("--quick=no", "--model.key-heads=none", "--seeds=").seeds == []


def test_what_is_nearer_to_the_person_counts_more(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('name = "file"\nseeds = [3]\n[model]\nlayers = 7\nwidth = 10\n')
    other = tmp_path / "b.json"
    other.write_text(json.dumps({"model": {"width": 12}, "rate": {"rate": 2}}))
    read = parse("--model.layers=9", f"--config={file}", "--preset=tiny", f"--config={other}")
    assert (read.model.layers, read.model.width, read.name, read.seeds) == (9, 12, "file", [3])
    assert read.rate.rate == 2.0 and isinstance(read.rate.rate, float)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model.layer=3"], "there is no option --model.layer; did you mean --model.layers?"),
        (["--end=3"], "there is no option --end; did you mean --rate.end?"),
        (["--width=3"], "there is no option --width; did you mean --model.width or --small.width?"),
        (["--zebra=3"], "there is no option --zebra; --help lists them"),
        (
            ["--model=3"],
            "there is no option --model; model has keys of its own, and takes no value",
        ),
        (["--model.layers=3.5"], "--model.layers: '3.5' is not a whole number (int)"),
        (["--rate.rate=fast"], "--rate.rate: 'fast' is not a number (float)"),
        (["--quick=maybe"], "--quick: 'maybe' is neither true nor false (bool)"),
        (["--model.kind=rnn"], "--model.kind: 'rnn' is none of gpt, mlp (gpt | mlp)"),
        (["--seeds=1,b"], "--seeds: 'b' is not a whole number (list of int)"),
        (["--model.layers"], "--model.layers needs a value (int): --model.layers=…"),
        (["layers"], "'layers' is no option; write --key=value"),
        (["--preset=tin"], "there is no preset tin; did you mean tiny?"),
        (["--config=none.toml"], "none.toml: No such file or directory"),
        (["--model.width=7"], "width 7 is odd"),
        (["--rate.least=2"], "a learning rate that goes from 0.001 to 2.0"),
        (["--a=1", "--quick=2"], "there is no option --a; --help lists them\n  --quick: '2' is"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str) -> None:
    with pytest.raises(tutti.Error) as caught:
        parse(*words)
    assert str(caught.value).startswith(said)
    assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model]\nlayer = 3\n", "a.toml: there is no key model.layer; did you mean model.layers?"),
        (
            "model = 3\n",
            "a.toml: model takes no value, it has keys of its own (layers, width, kind, …): write"
            " [model] and those below",
        ),
        ('[model]\nlayers = "3"\n', "a.toml: model.layers: '3' is not a whole number (int)"),
        ("[model]\nlayers = true\n", "a.toml: model.layers: True is not a whole number (int)"),
        ("seeds = 3\n", "a.toml: seeds: 3 is not a list (list of int)"),
        ("seeds = \n", "a.toml: Invalid value (at line 1"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(tutti.Error) as caught:
        parse(f"--config={file}")
    assert str(caught.value).startswith(str(tmp_path / said))


def test_a_resolved_configuration_is_written_and_read_back(tmp_path: Path) -> None:
    made = parse("--model.layers=3", "--seeds=1,2", '--name=a "b" é', "--rate.rate=1e-05")
    assert config.to_toml(made).startswith(
        'out = "run"  # Where results go, and checkpoints.\nseeds = [1, 2]\nname = "a \\"b\\" é"\n'
        "quick = false\n\n[model]\nlayers = 3  # how deep it is\nwidth = 64\n"
    )
    for file in (tmp_path / "run.toml", tmp_path / "run.json"):
        config.save(made, file)
        assert config.load(Config, file) == made
    assert config.from_dict(Config, config.to_dict(made)) == made
    with pytest.raises(tutti.Error, match=r"run\.toml: there is no key zebra"):
        config.from_dict(Config, {"zebra": 1}, "run.toml")


def test_a_program_tells_its_keys_and_refuses_others() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); sys.argv[0] = 'train.py'\n"
        "import gpt, tutti\n"
        "print(tutti.configure(gpt.ModelConfig))\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    shown = run("--help")
    assert shown.returncode == 0
    assert "usage: train.py [--KEY=VALUE …]" in shown.stdout
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "--context int = 1024 the longest sequence; 0: as long as those of the run" in lines
    assert "--activation gelu | gelu_tanh = gelu_tanh" in lines
    wrong = run("--layer=3")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "train.py: there is no option --layer; did you mean --layers?\n"
    assert "layers=3" in run("--layers=3").stdout


def test_what_cannot_be_configured_is_said() -> None:
    @dataclass
    class Bad:
        value: dict[str, int] = field(default_factory=dict)

    with pytest.raises(tutti.Error, match=r"Bad\.value is of type dict"):
        config.parse(Bad, [])
    with pytest.raises(tutti.Error, match="'int' is not a dataclass"):
        config.parse(int, [])

    @dataclass
    class Needed:
        path: Path
        count: int = 1

    with pytest.raises(tutti.Error, match=r"--path \(path\) has to be given"):
        config.parse(Needed, ["--count=2"])


def test_optimizers_are_checked_where_they_are_made() -> None:
    made = optim.AdamW(optim.cosine(6e-4, warm_up=100, least=6e-5))
    assert made.schedule.warm_up == 100 and made.schedule.decline == "cosine"
    assert optim.AdamW(1e-3).schedule == optim.Schedule(1e-3)
    assert optim.linear(1.0, end=5).end == 5
    for wrong, words in (
        (lambda: optim.AdamW(betas=(0.9, 1.0)), r"betas\[1\] is 1.0"),
        (lambda: optim.AdamW(decay=-1), "decay is -1"),
        (lambda: optim.AdamW(epsilon=0), "epsilon is 0; use more than 0"),
        (lambda: optim.constant(-1.0), "goes from -1.0 to 0.0"),
        (lambda: optim.cosine(1.0, warm_up=9, end=5), "least after 5 steps, within the warm-up of"),
        (lambda: optim.constant(1.0, warm_up=-1), "a warm-up of -1 steps"),
    ):
        with pytest.raises(tutti.Error, match=words):
            wrong()
