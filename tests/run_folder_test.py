"""The records of a run: as JSON lines and for TensorBoard, whole and once, whatever happens."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tutti
from model_tools import ROOT
from run_tools import wait_until
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tutti import _tensorboard
from tutti._run_folder import RunFolder, is_written

SIZES = (
    *("--model.layers=2", "--model.heads=2", "--model.width=16", "--batch=4", "--context=8"),
    *("--threads=1", "--evaluate_every=25", "--save_every=20", "--optim.rate.warm_up=3"),
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("abcde" * 100 + "edcba" * 100)
    return file


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def events_of(folder: Path) -> list[Any]:
    """As TensorBoard reads them: it raises at what is damaged."""
    files = sorted(folder.glob("events.out.tfevents.*"))
    return [event for file in files for event in LegacyEventFileLoader(str(file)).Load()]


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events_of(folder):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def start(text: Path, out: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, ROOT / "examples/gpt.py", *SIZES, f"--text={text}", f"--out={out}"]
    return subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL)


def steps_with(folder: Path, key: str) -> list[int]:
    return [record["step"] for record in lines_of(folder) if key in record]


def check_alike(folder: Path) -> None:
    """Both forms have the same records, each once."""
    scalars = scalars_of(folder)
    for key, tag in (("loss", "loss/training"), ("validation_loss", "loss/validation")):
        told = [(r["step"], pytest.approx(r[key])) for r in lines_of(folder) if key in r]
        assert scalars[tag] == told
        assert max(Counter(step for step, _ in told).values()) == 1
        assert [step for step, _ in told] == sorted(step for step, _ in told)


def test_tensorboard_reads_what_a_run_records(text: Path, tmp_path: Path) -> None:
    assert start(text, tmp_path / "run", "--steps=50").wait() == 0
    scalars = scalars_of(tmp_path / "run")
    tags = {"loss/training", "loss/validation", "optimizer/norm", "optimizer/rate"}
    tags |= {"speed/tokens_a_second", "speed/of_peak", "memory/bytes"}
    assert tags <= scalars.keys()
    assert [step for step, _ in scalars["optimizer/rate"]] == [1, 10, 20, 30, 40, 50]
    assert [step for step, _ in scalars["loss/validation"]] == [25, 50]
    assert scalars["memory/bytes"][-1][1] > 1e6
    check_alike(tmp_path / "run")
    assert json.loads((tmp_path / "run/status.json").read_text())["status"] == "done"


def test_a_run_that_was_killed_goes_on_without_records_twice_or_torn(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    state = out / "state.safetensors"
    for _ in range(2):
        resume = ["--resume=true"] if state.exists() else []
        before = len(lines_of_whole(out)) if resume else 0
        killed = start(text, out, "--steps=200000", *resume)
        wait_until(
            lambda at=before: (
                state.exists() and (out / "metrics.jsonl").read_bytes().count(b"\n") > at + 30
            ),
            "it saves and records",
        )
        assert is_written(out)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert not is_written(out) and not (out / "status.json").exists()
        # As if it had been killed within a write.
        with (out / "metrics.jsonl").open("ab") as lines:
            lines.write(b'{"time": 1.0, "step"')
        with max(out.glob("events.*")).open("ab") as events:
            events.write(_tensorboard.scalars(1.0, 10**6, {"loss/training": 1.0})[:-3])
    last = lines_of_whole(out)[-1]["step"]
    steps = last // 10 * 10 + 40
    assert start(text, out, f"--steps={steps}", "--resume").wait() == 0
    assert steps_with(out, "loss") == [1, *range(10, steps + 1, 10)]
    check_alike(out)
    starts = [each.step for each in events_of(out) if each.session_log.status == 1]
    assert len(starts) == 3 and starts == sorted(starts) and starts[0] == 1


def lines_of_whole(folder: Path) -> list[dict[str, Any]]:
    whole = (folder / "metrics.jsonl").read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def test_a_second_process_does_not_write_into_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutti._run_folder._PATIENCE_SECONDS", 0.1)
    with RunFolder(tmp_path, 0) as first:
        first.note({"step": 1, "loss": 2.0})
        first.flush()
        with pytest.raises(tutti.Error, match="another process trains in"), RunFolder(tmp_path, 0):
            pass
        assert is_written(tmp_path) and len(lines_of(tmp_path)) == 1
    assert not is_written(tmp_path)


def test_a_run_says_why_it_failed_and_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), RunFolder(tmp_path, 0):
        raise ValueError("no")
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["why"]) == ("failed", "no")
    with (
        pytest.raises(tutti.Error, match="records cannot be written"),
        RunFolder(tmp_path, 0) as it,
    ):
        it._files[0].close()
        it.note({"step": 1, "loss": 2.0})
        it.flush()


def test_checksums_are_those_of_the_standard() -> None:
    assert _tensorboard.crc32c(b"123456789") == 0xE3069283  # as in RFC 3720's successors
    assert _tensorboard.crc32c(bytes(32)) == 0x8A9136AA
    for step in (0, 127, 128, 2**40):
        ((event, end),) = _tensorboard.records(_tensorboard.scalars(1.5, step, {"a": 1e300}))
        assert _tensorboard.step_of(event) == step and end > 0
