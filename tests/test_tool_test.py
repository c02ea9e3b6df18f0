"""tools/test.py counts what ctest and pytest report, and misses no failure."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools/test.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_tool", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_tool"] = module
    spec.loader.exec_module(module)
    return module


tool = load()

PASSED = "[doctest] test cases:  6 |  6 passed | 0 failed | 0 skipped"
SOME_FAILED = "[doctest] test cases: 10 |  7 passed | 3 failed | 1 skipped"


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        ("run", PASSED, (6, 0, 0)),
        ("fail", SOME_FAILED, (7, 3, 1)),
        # Died before it could count, or after it had counted no failure.
        ("fail", "terminate called", (0, 1, 0)),
        ("fail", PASSED, (6, 1, 0)),
        ("notrun", "", (0, 1, 0)),
        # A program that passed and is no doctest.
        ("run", "fine", (1, 0, 0)),
    ],
)
def test_ctest_is_counted_by_test_cases(
    status: str, output: str, expected: tuple[int, int, int], tmp_path: Path
) -> None:
    junit = tmp_path / "ctest.xml"
    junit.write_text(
        f'<testsuite><testcase name="x" status="{status}">'
        f"<system-out>{output}</system-out></testcase></testsuite>"
    )
    count = tool.count_ctest(junit)
    assert (count.passed, count.failed, count.skipped) == expected


def test_pytest_is_counted_with_its_errors_and_skips(tmp_path: Path) -> None:
    junit = tmp_path / "pytest.xml"
    junit.write_text(
        "<testsuites><testsuite><testcase/><testcase/><testcase><failure/></testcase>"
        "<testcase><error/></testcase><testcase><skipped/></testcase></testsuite></testsuites>"
    )
    count = tool.count_pytest(junit)
    assert (count.passed, count.failed, count.skipped) == (2, 2, 1)


def test_skips_are_told_when_there_are_any() -> None:
    assert str(tool.Count(passed=3)) == "3 passed, 0 failed"
    assert str(tool.Count(passed=3, skipped=2)) == "3 passed, 0 failed, 2 skipped"


def test_a_stage_runs_when_it_is_built_and_counts_as_one_failure_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "run", lambda *words: "bad" not in words)
    ran = []

    def stage(name: str, *build: str) -> object:
        return tool.Stage(name, build, lambda: ran.append(name) or tool.Count(passed=2))

    total = tool.run_all((stage("a", "good"), stage("b", "bad"), stage("c")))
    assert ran == ["a", "c"]
    assert (total.passed, total.failed) == (4, 1)
    told = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in told] == [
        "a: 2 passed, 0 failed",
        "b: 0 passed, 1 failed",
        "c: 2 passed, 0 failed",
    ]
