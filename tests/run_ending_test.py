"""How `tutti run` ends: signals and what is left of the grace, and that nothing survives."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_tools import CGROUP_OR_NOT, PATIENCE_S, TUTTI, Marked, tutti, wait_until

# A rank that tries to leave something behind in every way we know, then waits.
ESCAPEES = r"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def daemonise(prepare=lambda: None):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            prepare()
            time.sleep(1000)
        os._exit(0)

daemonise()
daemonise(lambda: os.kill(os.getpid(), signal.SIGSTOP))
subprocess.Popen(["setsid", "sleep", "1000"])
subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
stopped = subprocess.Popen(["sleep", "1000"])
os.kill(stopped.pid, signal.SIGSTOP)
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""
ESCAPEES_PER_RANK = 6  # with the rank itself


# Being told to stop -------------------------------------------------------------------------------

SLEEPER = "trap 'echo asked to end; exit 0' {0}; echo up; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    "number, seen",
    [(signal.SIGINT, "INT"), (signal.SIGTERM, "TERM"), (signal.SIGHUP, "TERM")],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_signal_ends_everything_with_grace(gang: Marked, number: int, seen: str) -> None:
    process = gang.start("-n", "2", "--", "sh", "-c", SLEEPER.format(seen))
    assert {process.stdout.readline(), process.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert sorted(output.splitlines()) == ["[0] asked to end", "[1] asked to end"]
    assert f"interrupted by {signal.Signals(number).name}; ranks 0-1 still ran" in errors


def test_a_second_signal_ends_everything_at_once(gang: Marked) -> None:
    script = "trap '' INT TERM; echo up; while :; do sleep 0.05; done"
    process = gang.start("-n", "2", "--grace", "1h", "--", "sh", "-c", script)
    assert {process.stdout.readline(), process.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 130
    assert "ranks 0-1 (SIGKILL" in errors


# Nothing survives ---------------------------------------------------------------------------------


@CGROUP_OR_NOT
def test_what_ranks_leave_behind_is_ended_when_they_finish(gang: Marked, how) -> None:
    process = gang.start(*how, "-n", "2", "--", sys.executable, "-c", ESCAPEES, "0")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert gang.living() == []


@CGROUP_OR_NOT
def test_what_ranks_leave_behind_is_ended_when_one_fails(gang: Marked, how) -> None:
    script = ESCAPEES + "\nsys.exit(4)"
    process = gang.start(
        *how, "-n", "2", "--grace", "100ms", "--", sys.executable, "-c", script, "0.2"
    )
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    assert gang.living() == []


def start_escapees(gang: Marked, how: tuple[str, ...], ranks: int) -> subprocess.Popen[str]:
    process = gang.start(*how, "-n", str(ranks), "--", sys.executable, "-c", ESCAPEES, "1000")
    for _ in range(ranks):
        assert "ready" in process.stdout.readline()
    beside = 2  # tutti and its keeper
    expected = ranks * ESCAPEES_PER_RANK + beside
    wait_until(lambda: len(gang.living()) == expected, "all escapees run")
    return process


@CGROUP_OR_NOT
def test_nothing_survives_sigkill_of_tutti(gang: Marked, how) -> None:
    process = start_escapees(gang, how, 3)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    gang.all_gone()


@CGROUP_OR_NOT
def test_nothing_survives_sigkill_of_the_keeper(gang: Marked, how) -> None:
    process = start_escapees(gang, how, 3)
    os.kill(gang.keeper(), signal.SIGKILL)
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1
    assert re.search(r"the keeper \(process \d+\) ended: killed by SIGKILL", errors)
    assert "ranks 0-2" in errors
    assert gang.living() == []


@CGROUP_OR_NOT
def test_a_keeper_that_is_stopped_is_replaced_by_tutti_itself(gang: Marked, how) -> None:
    process = start_escapees(gang, how, 1)
    os.kill(gang.keeper(), signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert gang.living() == []


@CGROUP_OR_NOT
@pytest.mark.parametrize("victim", ["tutti", "keeper"])
def test_nothing_survives_sigkill_at_any_moment_of_the_launch(
    gang: Marked, how: tuple[str, ...], victim: str
) -> None:
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    for _ in range(10):
        process = gang.start(*how, "-n", "8", "--", "sh", "-c", "setsid sleep 1000 & sleep 1000")
        pid = process.pid if victim == "tutti" else gang.keeper()
        time.sleep(moments.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == (-signal.SIGKILL if victim == "tutti" else 1), f"seed {seed}"
        gang.all_gone()


@CGROUP_OR_NOT
def test_a_fork_bomb_is_put_out(gang: Marked, how) -> None:
    # Each process starts two more, down to a depth: thousands, if nobody stops them.
    script = "import os, time\nfor _ in range(11): os.fork()\ntime.sleep(1000)"
    process = gang.start(
        *how, "--timeout", "300ms", "--grace", "0", "--", sys.executable, "-c", script
    )
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 124
    assert gang.living() == []


def groups() -> set[str]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    roots = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    return {str(path) for root in roots for path in Path(root).rglob("tutti-run-*")}


def test_no_cgroup_is_left_and_those_of_dead_runs_are_swept(gang: Marked) -> None:
    before = groups()
    process = gang.start("-n", "2", "--", "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000")
    assert {process.stdout.readline(), process.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    made = groups() - before
    if not made:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        pytest.skip("no writable cgroup2 mount here")
    keeper = gang.keeper()
    os.kill(keeper, signal.SIGSTOP)  # so that it cannot clean up after tutti
    process.kill()
    os.kill(keeper, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    assert gang.living(), "the escapees have nobody left to end them"
    assert tutti("--", "true").returncode == 0
    assert not made & groups()
    gang.all_gone()


def test_children_that_tutti_had_before_are_left_alone() -> None:
    # A shell's background job becomes tutti's child by exec.
    background = "sleep 1000 > /dev/null 2>&1 & echo $!"
    script = f"{background}; exec {TUTTI} run --no-cgroup -- sh -c 'sleep 0.1; exit 2'"
    done = subprocess.run(
        ["sh", "-c", script], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S
    )
    child = int(done.stdout.split()[0])
    assert done.returncode == 2
    os.kill(child, signal.SIGKILL)  # fails if it is gone
