"""`tutti runs` and `tutti plot`: tables and curves of real, small runs."""

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
import tutti
from fabric_tools import ENVIRONMENT
from PIL import Image
from run_tools import PATIENCE_S, ROOT, TUTTI, wait_until
from tutti import runs
from tutti._chart import Curve, Scale, draw

SIZES = (
    *("--model.layers=1", "--model.heads=2", "--model.width=16", "--batch=4", "--context=8"),
    *("--threads=1", "--evaluate_every=25", "--steps=50", "--optim.rate.warm_up=3"),
    "--optim.rate.least=1e-5",
)
PATH = {"PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}


def train(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, ROOT / "examples/gpt.py", *SIZES, f"--text={folder / 'text.txt'}"]
    return subprocess.Popen(
        [*command, *words],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With runs that are done, failed, and were killed."""
    made = tmp_path_factory.mktemp("runs")
    (made / "text.txt").write_text("abcde" * 100 + "edcba" * 100)
    for rate in ("1e-2", "1e-3"):
        assert train(made, f"--out=runs/{rate}", f"--optim.rate.rate={rate}").wait() == 0
    words = ("--out=runs/deep/failed", "--optim.rate.rate=1e38", "--optim.max_norm=0")
    assert train(made, *words).wait() == 1
    killed = train(made, "--out=runs/deep/killed", "--steps=1000000")
    metrics = made / "runs/deep/killed/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 5, "it records")
    assert runs.read(made / "runs/deep/killed").status == "running"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    return made


def tutti_(folder: Path, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUTTI, *words],
        cwd=folder,
        env=ENVIRONMENT | PATH | {"COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def on_a_terminal(folder: Path, columns: int, *words: str) -> list[str]:
    """What is printed on one, without colours."""
    first, second = pty.openpty()
    ioctl(second, termios.TIOCSWINSZ, struct.pack("4H", 30, columns, 0, 0))
    environment = {k: v for k, v in (ENVIRONMENT | PATH).items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [TUTTI, *words],
        cwd=folder,
        env=environment | {"TERM": "xterm"},
        stdout=second,
        stderr=subprocess.DEVNULL,
        stdin=second,
    )
    os.close(second)
    data = b""
    while True:
        try:
            piece = os.read(first, 4096)
        except OSError:  # nobody writes any more
            break
        if not piece:
            break
        data += piece
    os.close(first)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", data.decode()).replace("\r", "").splitlines()


def test_a_table_has_every_run_its_state_and_what_differs(folder: Path) -> None:
    done = tutti_(folder, "runs")
    lines = done.stdout.splitlines()
    cells = {line.split()[0]: line.split() for line in lines[1:5]}
    assert lines[0].split()[:7] == [
        "run",
        "status",
        "step",
        "loss",
        "validation",
        "tokens/s",
        "when",
    ]
    assert "rate" in lines[0].split() and "max_norm" in lines[0].split()
    assert list(cells) == ["1e-3", "1e-2", "deep/failed", "deep/killed"]
    assert cells["1e-3"][1:3] == ["done", "50/50"] and "0.001" in cells["1e-3"]
    assert cells["deep/killed"][1] == "interrupted"
    assert cells["deep/failed"][1] == "failed"
    assert lines[5].startswith("failed deep/failed: step 2 was not taken: its loss is nan")
    told = {each["name"]: each for each in json.loads(tutti_(folder, "runs", "--json").stdout)}
    assert told["1e-2"]["differs"]["optim.rate.rate"] == 0.01
    assert told["1e-2"]["validation_loss"] < told["1e-3"]["validation_loss"]
    assert told["1e-2"]["config"]["model.width"] == 16
    ordered = tutti_(folder, "runs", "runs", "--sort", "validation").stdout.splitlines()
    assert ordered[1].startswith("1e-2")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_table_fits_the_terminal(folder: Path, columns: int) -> None:
    lines = on_a_terminal(folder, columns, "runs")
    assert all(len(line) <= columns for line in lines[:5])
    assert lines[0].split()[:2] == ["run", "status"]


def test_curves_fit_the_terminal_and_are_told_apart(folder: Path) -> None:
    for columns in (50, 80, 120):
        lines = on_a_terminal(folder, columns, "plot", "runs/1e-2", "runs/1e-3")
        assert lines[0] == "loss" and max(map(len, lines)) == columns
        assert any("\u2801" <= c <= "\u28ff" for c in "".join(lines))
        assert lines[-1].startswith("━━  1e-3") and "at step 50" in lines[-1]
    plain = tutti_(folder, "plot", "runs", "--metric", "validation", "--log").stdout.splitlines()
    assert plain[0] == "validation loss (logarithmic)"
    assert max(map(len, plain)) <= 80 and {"a", "b"} <= set("".join(plain[1:18]))


def test_a_picture_is_a_png_with_its_curves(folder: Path) -> None:
    done = tutti_(folder, "plot", "runs/1e-2", "runs/1e-3", "--png", "made/loss.png")
    assert done.returncode == 0, done.stderr
    with Image.open(folder / "made/loss.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
        assert image.size == (1200, 720)
    assert {(0x1B, 0x6C, 0xA8), (0xD6, 0x5F, 0x1E)} <= colours
    assert "ends in .png" in tutti_(folder, "plot", "runs/1e-2", "--png", "a.jpg").stderr


def test_points_for_tools_are_those_recorded(folder: Path) -> None:
    (told,) = json.loads(tutti_(folder, "plot", "runs/1e-2", "--metric=rate", "--json").stdout)
    recorded = [r for r in runs.metrics(folder / "runs/1e-2") if "rate" in r]
    assert told["points"] == [[r["step"], r["rate"]] for r in recorded] and len(recorded) > 5


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("runs", "nowhere"), "there is no folder nowhere"),
        (("plot", "nowhere"), "there is no folder nowhere"),
        (("plot", "made-empty"), "there are no runs in made-empty"),
        (("plot", "runs/1e-2", "--metric=los"), "nothing is recorded of los; did you mean loss?"),
    ],
)
def test_what_is_not_there_is_told(folder: Path, words: tuple[str, ...], error: str) -> None:
    (folder / "made-empty").mkdir(exist_ok=True)
    done = tutti_(folder, *words)
    assert done.returncode == 1 and error in done.stderr


def test_broken_files_are_runs_of_which_less_is_known(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"time": 1.0, "step": 1, "loss": 2.5}\n{"loss":')
    (tmp_path / "config.toml").write_text("steps = ")
    (tmp_path / "status.json").write_text("[]")
    run = runs.read(tmp_path)
    assert (run.status, run.step, run.loss, run.config) == ("interrupted", 1, 2.5, {})
    with pytest.raises(tutti.Error, match="no folder of a run"):
        runs.read(tmp_path / "none")


def test_short_names_are_the_shortest_that_mean_one_key() -> None:
    keys = ["steps", "model.width", "optim.rate.rate", "optim.rate.end", "data.end"]
    short: dict[str, Any] = runs.short_names(keys)
    assert list(short.values()) == ["steps", "width", "rate", "rate.end", "data.end"]
    assert runs.ending_in("end", keys) == ["optim.rate.end", "data.end"]


@pytest.mark.parametrize("log", [False, True])
def test_any_numbers_can_be_drawn(log: bool) -> None:
    for points in ([(1, 1.0)], [(1, 2.0), (2, 2.0)], [(0, 1e-9), (10**7, 1e9)]):
        lines = draw([Curve("a", points)], 40, 8, log)
        assert len(lines) == 10 and max(map(len, lines)) == 40
    assert Scale(0, 10).ticks(6) == [0, 2, 4, 6, 8, 10]
    assert Scale(1, 1000, True).ticks(5) == [1, 10, 100, 1000]
