"""Builds and runs every test, and ends with one line: N passed, N failed, and N skipped if any.

Stages: the release build, the address and undefined-behaviour sanitizers, the thread sanitizer
(only tests marked CONCURRENT in CMakeLists.txt), and pytest over tests/.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = os.cpu_count() or 1
TEST_TIMEOUT_S = 600  # an executable that takes longer hangs; the slowest takes seconds
DOCTEST_SUMMARY = re.compile(
    r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed \|\s*(\d+) skipped"
)


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def run(*command: str | Path, **env: str) -> bool:
    """Runs a command in the root of the repository, with its output on ours."""
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, env=os.environ | env).returncode == 0


def run_quietly(*command: str | Path) -> bool:
    """Runs a command that is worth reading only when it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(done.stdout.decode(errors="replace"))
    return done.returncode == 0


def count_ctest(junit: Path) -> Count:
    """Test cases as doctest counts them; an executable that died without a count is one failure."""
    total = Count()
    for case in ET.parse(junit).iter("testcase"):
        summary = DOCTEST_SUMMARY.search(case.findtext("system-out") or "")
        count = Count(*map(int, summary.groups())) if summary else Count()
        if case.get("status") != "run" and count.failed == 0:
            count.failed = 1
        elif summary is None:
            count.passed = 1
        total += count
    return total


def count_pytest(junit: Path) -> Count:
    total = Count()
    for case in ET.parse(junit).iter("testcase"):
        broken = case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped") is not None
        total += Count(failed=1) if broken else Count(skipped=1) if skipped else Count(passed=1)
    return total


def cxx_stage(preset: str, targets: list[str], select: tuple[str, ...] = ()) -> Count:
    if not run("tools/build", preset, *targets):
        return Count(failed=1)
    junit = ROOT / "build" / preset / "ctest.xml"
    junit.unlink(missing_ok=True)
    passed = run_quietly(
        "ctest",
        "--test-dir",
        f"build/{preset}",
        "-j",
        str(JOBS),
        "--output-on-failure",
        "--timeout",
        str(TEST_TIMEOUT_S),
        "--output-junit",
        junit,
        "--test-output-truncation",
        "head",
        "--no-tests=ignore",
        *select,
    )
    count = count_ctest(junit) if junit.exists() else Count()
    # Whatever ctest held against us and did not write down.
    return count if passed or count.failed else count + Count(failed=1)


def release() -> Count:
    return cxx_stage("release", ["all", "tests", "examples"])


def asan() -> Count:
    return cxx_stage("asan", ["tests"])


def tsan() -> Count:
    return cxx_stage("tsan", ["concurrent_tests"], select=("-L", "concurrent"))


# JAX has threads, and more memory than all else: nothing should be forked from where it is loaded.
APART = "tests/nn_jax_test.py"


def python() -> Count:
    return pytest("pytest", "tests", f"--ignore={APART}") + pytest("pytest-jax", APART)


def pytest(name: str, *what: str) -> Count:
    junit = ROOT / "build" / f"{name}.xml"
    junit.unlink(missing_ok=True)
    run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *what,
        f"--junitxml={junit}",
        PYTHONPATH=str(ROOT / "python"),
    )
    return count_pytest(junit) if junit.exists() else Count(failed=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the sanitizers out")
    arguments = parser.parse_args()

    stages: list[Callable[[], Count]] = [release, python]
    if not arguments.quick:
        stages[1:1] = [asan, tsan]
    total = Count()
    for stage in stages:
        start = time.monotonic()
        count = stage()
        seconds = time.monotonic() - start
        print(f"{stage.__name__}: {count} in {seconds:.0f} s")
        total += count
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
