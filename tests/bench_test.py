"""bench/run.py and bench/common.py: what a ratio means, what a line holds, how failures end."""

import importlib.util
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import common  # noqa: E402


def load_runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_runner", BENCH / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = load_runner()
KEYS = ["bench", "case", "unit", "ours", "peer", "theirs", "ratio", "spread"]

SAMPLE = """
from common import Missing, compare
def run(quick):
    yield compare(case="speed", unit="GB/s", higher_is_better=True, rounds=3,
                  ours=lambda: 30.0, peer="p 1", theirs=lambda: 10.0)
    yield compare(case="time", unit="s", higher_is_better=False, rounds=3,
                  ours=lambda: 1.0, peer="limit", theirs=0.5)
    if not quick:
        yield compare(case="alone", unit="s", higher_is_better=False, rounds=3,
                      ours=lambda: 1.0, peer="q", theirs=Missing("no q here"))
"""


def test_a_ratio_above_one_means_we_are_better() -> None:
    def compare(higher: bool) -> float | None:
        return common.compare(
            case="c", unit="u", ours=lambda: 4.0, peer="p", theirs=lambda: 2.0,
            higher_is_better=higher, rounds=1,
        ).ratio  # fmt: skip

    assert compare(higher=True) == 2.0
    assert compare(higher=False) == 0.5


def test_rounds_interleave_and_take_turns_in_going_first() -> None:
    calls: list[str] = []

    def measure(name: str) -> float:
        calls.append(name)
        return 1.0

    common.compare(
        case="c", unit="u", ours=lambda: measure("a"), peer="p", theirs=lambda: measure("b"),
        higher_is_better=True, rounds=3,
    )  # fmt: skip
    assert "".join(calls) == "abbaab"


def test_the_ratio_is_taken_within_rounds() -> None:
    # The machine is twice as slow in the second round: the ratio does not notice.
    ours, theirs = iter([4.0, 2.0, 4.0]), iter([2.0, 1.0, 2.0])
    case = common.compare(
        case="c", unit="u", ours=lambda: next(ours), peer="p", theirs=lambda: next(theirs),
        higher_is_better=True, rounds=3,
    )  # fmt: skip
    assert (case.ours, case.theirs, case.ratio, case.spread) == (4.0, 2.0, 2.0, 0.0)


def test_spread_is_the_relative_half_width_of_the_quartiles() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert common.spread_of(values) == (4.0 - 2.0) / 2 / 3.0
    assert statistics.median(values) == 3.0
    assert common.spread_of([7.0]) == 0.0


def test_json_lines_have_exactly_their_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench_sample.py").write_text(SAMPLE)
    assert runner.main(["--json"], tmp_path) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(line) for line in lines] == [KEYS, KEYS, [*KEYS, "note"]]
    speed, limit, alone = lines
    assert (speed["bench"], speed["ratio"], speed["theirs"]) == ("sample", 3.0, 10.0)
    assert (limit["peer"], limit["ratio"]) == ("limit", 0.5)
    assert (alone["theirs"], alone["ratio"], alone["note"]) == (None, None, "no q here")


def test_people_get_a_table_and_quick_runs_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench_sample.py").write_text(SAMPLE)
    assert runner.main(["sample", "--quick"], tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "3.00x" in lines[1]
    assert "0.50x" in lines[2]


def test_one_broken_benchmark_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench_a.py").write_text("def run(quick):\n    raise RuntimeError('no disk')\n")
    (tmp_path / "bench_b.py").write_text(SAMPLE)
    assert runner.main(["--json", "--quick"], tmp_path) == 1
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 2
    assert "no disk" in output.err
    assert output.err.endswith("bench: failed: a\n")


def test_an_unknown_name_is_refused_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench_sample.py").write_text(SAMPLE)
    with pytest.raises(SystemExit) as ended:
        runner.main(["smaple"], tmp_path)
    assert ended.value.code == 2
    assert "no benchmark smaple; there are: sample" in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "PEERS", tmp_path)
    monkeypatch.setattr(common, "_quietly", lambda *command: False)
    assert common.python_peer("x", "x==1") == common.Missing("pip cannot install x==1 here")
    assert common.debian_peer("x") == common.Missing("apt-get cannot install x here")
