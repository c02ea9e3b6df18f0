"""Builds and runs every test, and ends with one line: N passed, N failed, and N skipped if any.

Stages: the release build, pytest over tests/, the address and undefined-behaviour sanitizers, and
the thread sanitizer (only tests marked CONCURRENT in CMakeLists.txt). While one stage runs the next
is built: tests mostly wait, compilers never do.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = os.cpu_count() or 1
TEST_TIMEOUT_S = 1200  # an executable that takes longer hangs
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


def ctest(preset: str, *select: str) -> Count:
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


@dataclass(frozen=True)
class Stage:
    name: str
    build: tuple[str, ...]  # the words of tools/build; none if an earlier stage built it
    run: Callable[[], Count]


QUICK = (
    Stage("release", ("release", "all", "tests", "examples"), lambda: ctest("release")),
    Stage("python", (), python),
)
SANITIZERS = (
    Stage("asan", ("asan", "tests"), lambda: ctest("asan")),
    Stage("tsan", ("tsan", "concurrent_tests"), lambda: ctest("tsan", "-L", "concurrent")),
)


def build(stage: Stage) -> tuple[bool, float]:
    """Whether it went well, and in how many seconds."""
    start = time.monotonic()
    return not stage.build or run("tools/build", *stage.build), time.monotonic() - start


def run_all(stages: tuple[Stage, ...]) -> Count:
    total = Count()
    builder = ThreadPoolExecutor(1)
    try:
        builds = [builder.submit(build, stage) for stage in stages]
        for stage, building in zip(stages, builds, strict=True):
            built, build_s = building.result()
            start = time.monotonic()
            count = stage.run() if built else Count(failed=1)
            run_s = time.monotonic() - start
            print(f"{stage.name}: {count}; built in {build_s:.0f} s, ran in {run_s:.0f} s")
            total += count
    finally:
        builder.shutdown(cancel_futures=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the sanitizers out")
    arguments = parser.parse_args()
    total = run_all(QUICK if arguments.quick else QUICK + SANITIZERS)
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
