"""How `tutti run` ends: signals and what is left of the grace, and that nothing survives."""

import json
import os
import pty
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
    assert process.returncode == -number  # a shell shows it as 128 + number
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
    assert process.returncode == -signal.SIGINT
    assert "ranks 0-1 (SIGKILL, when a second signal came)" in errors


def test_the_verdict_begins_on_its_own_line_after_a_second_ctrl_c(gang: Marked) -> None:
    environment = gang.environment | {"TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    child, terminal = pty.fork()
    if child == 0:
        script = "trap '' INT TERM; echo up; while :; do sleep 0.05; done"
        os.execve(TUTTI, [TUTTI, "run", "--grace", "1h", "--", "sh", "-c", script], environment)
    with os.fdopen(terminal, "rb+", buffering=0) as stream:
        shown = b""
        for expected in (b"up\r\n", b"again to kill at once\r\n"):
            while expected not in shown:
                shown += stream.read(4096)
            stream.write(b"\x03")
        while b"exit code" not in shown:
            shown += stream.read(4096)
    os.waitpid(child, 0)
    assert b"^C\r\n\033[0;1;31mtutti: interrupted by SIGINT" in shown


# Asked to end, it saves for a while, and says so in a file.
SAVES = """
import signal, sys, time
from pathlib import Path
def save(number, frame):
    time.sleep(0.5)
    Path(sys.argv[1]).write_text("saved")
    sys.exit()
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(1000)
"""


@CGROUP_OR_NOT
def test_what_a_rank_started_is_asked_too_and_has_the_rest_of_the_grace(
    gang: Marked, how, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    # The shell ends at once, and with it the rank.
    wrapped = ("sh", "-c", '"$@"; true', "sh", sys.executable, "-c", SAVES, saved)
    process = gang.start(*how, "--grace", "1m", "--", *wrapped)
    assert process.stdout.readline() == "[0] up\n"
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert saved.read_text() == "saved"
    assert gang.living() == []


@CGROUP_OR_NOT
def test_nobody_waits_for_the_grace_of_those_who_are_gone(gang: Marked, how) -> None:
    script = """
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("up", flush=True)
time.sleep(1000)
"""
    process = gang.start(*how, "--grace", "1h", "--", sys.executable, "-c", script)
    assert process.stdout.readline() == "[0] up\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert gang.living() == []


def test_a_second_signal_ends_the_grace_of_what_a_rank_left(gang: Marked) -> None:
    script = "(trap '' TERM; echo up; exec sleep 1000); true"
    process = gang.start("--grace", "1h", "--", "sh", "-c", script)
    assert process.stdout.readline() == "[0] up\n"
    process.terminate()
    wait_until(lambda: len(gang.living()) == 3, "the shell is gone")  # tutti, keeper, sleep
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert gang.living() == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=["nohup", "background"])
def test_a_signal_that_was_ignored_stays_so(gang: Marked, number: int) -> None:
    process = gang.start(
        "--",
        "sh",
        "-c",
        "echo up; sleep 0.5",
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert process.stdout.readline() == "[0] up\n"
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0


def test_a_signal_to_all_processes_leaves_ranks_their_grace(gang: Marked, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    process = gang.start("--grace", "1m", "--", sys.executable, "-c", SAVES, saved)
    assert process.stdout.readline() == "[0] up\n"
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGTERM):
        os.kill(gang.keeper(), number)
    process.terminate()
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert saved.read_text() == "saved"
    assert "interrupted by SIGTERM" in errors


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_z_stops_the_ranks_until_tutti_goes_on(gang: Marked) -> None:
    process = gang.start("--", "sh", "-c", "echo $$; exec sleep 1000", process_group=0)
    rank = int(process.stdout.readline().split()[1])
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: state_of(process.pid) == "T", "tutti is stopped")
    wait_until(lambda: state_of(rank) == "T", "the rank is stopped too")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: state_of(rank) == "S", "the rank goes on")
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_a_loop_of_a_shell_ends_with_the_run_that_was_interrupted(gang: Marked) -> None:
    sleeper = "import signal, time; signal.signal(2, signal.SIG_DFL); print('up'); time.sleep(1000)"
    loop = f'for i in 1 2 3; do {TUTTI} run -- {sys.executable} -c "{sleeper}"; done; echo after'
    process = subprocess.Popen(
        ["bash", "-c", loop],
        env=gang.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "[0] up\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate(timeout=PATIENCE_S)[0] == ""
    gang.all_gone()


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
    assert process.returncode == -signal.SIGINT
    assert gang.living() == []


# Stops the keeper once, or again and again, beside the rank and in a session of its own.
STOPPER = "sleep 0.3; kill -STOP $PPID; {more} echo stopped; exec sleep 1000"
AGAIN = 'keeper=$PPID; setsid sh -c "while kill -STOP $keeper; do :; done" &'


@CGROUP_OR_NOT
@pytest.mark.parametrize("more", ["", AGAIN], ids=["once", "again"])
def test_a_rank_that_stops_its_keeper_escapes_nothing(gang: Marked, how, more: str) -> None:
    script = STOPPER.format(more=more)
    process = gang.start(*how, "--grace", "100ms", "--timeout", "1s", "--", "sh", "-c", script)
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 124, errors
    assert gang.living() == []


@CGROUP_OR_NOT
def test_a_keeper_that_is_stopped_cleans_up_when_tutti_was_killed(gang: Marked, how) -> None:
    process = start_escapees(gang, how, 1)
    process.send_signal(signal.SIGSTOP)  # or it would have the keeper go on
    os.kill(gang.keeper(), signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    gang.all_gone()


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


def ended_but_there(pid: int) -> bool:
    try:
        return state_of(pid) == "Z"
    except (FileNotFoundError, ProcessLookupError):  # collected since we looked
        return False


def test_orphans_that_end_are_collected_while_ranks_run(gang: Marked) -> None:
    script = "for i in 1 2 3 4 5; do (sh -c 'exit 0' &); done; echo up; sleep 1000"
    process = gang.start("-n", "2", "--", "sh", "-c", script)
    assert {process.stdout.readline(), process.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    keeper = gang.keeper()

    def zombies() -> list[str]:
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        return [pid for pid in children if ended_but_there(int(pid))]

    wait_until(lambda: not zombies(), "the keeper has collected every orphan")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)


def test_the_keeper_is_not_found_by_the_name_of_tutti(gang: Marked) -> None:
    process = gang.start("--", "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000")
    assert process.stdout.readline() == "[0] up\n"
    assert "tutti" not in Path(f"/proc/{gang.keeper()}/comm").read_text()
    process.kill()  # as pkill -9 tutti
    process.communicate(timeout=PATIENCE_S)
    gang.all_gone()


def cgroup2_root() -> Path:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    for line in mounts:
        if " - cgroup2 " in line and os.access(line.split()[4], os.W_OK):
            return Path(line.split()[4])
    pytest.skip("no writable cgroup2 mount here")


def test_a_cgroup_that_takes_no_process_is_done_without(gang: Marked) -> None:
    threaded = cgroup2_root() / f"test-threaded-{os.getpid()}"
    (threaded / "threads").mkdir(parents=True)
    try:
        (threaded / "threads/cgroup.type").write_text("threaded")
        command = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        words = ["sh", "-c", command, threaded, TUTTI, "run", "--", "echo", "started"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.stdout, done.stderr, done.returncode) == ("[0] started\n", "", 0)
    finally:
        (threaded / "threads").rmdir()
        threaded.rmdir()


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
    process.send_signal(signal.SIGSTOP)  # so that it cannot clean up after its keeper
    os.kill(gang.keeper(), signal.SIGKILL)
    process.kill()
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


def test_what_children_from_before_start_meanwhile_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    background = f"(sleep 0.3; sleep 1000 & echo $! > {place}; wait) > /dev/null 2>&1 &"
    script = f"{background} exec {TUTTI} run --no-cgroup -- sh -c 'sleep 0.6; kill -9 $PPID'"
    subprocess.run(["sh", "-c", script], stderr=subprocess.DEVNULL, timeout=PATIENCE_S)
    os.kill(int(place.read_text()), signal.SIGKILL)  # fails if it is gone


def unshared(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["unshare", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if "unshare:" in done.stderr:
        pytest.skip(done.stderr)
    return done


@pytest.mark.parametrize("mount", ["true", "umount -l /proc"], ids=["another", "none"])
def test_without_its_own_proc_nothing_is_started(mount: str) -> None:
    script = f"{mount} && exec {TUTTI} run -- echo started"
    done = unshared("--mount", "--pid", "--fork", "sh", "-c", script)
    assert (done.stdout, done.returncode) == ("", 1)
    assert "mount -t proc proc /proc" in done.stderr


def test_what_may_not_be_ended_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make what another user may not end")
    for folder in [tmp_path, *tmp_path.parents[:2]]:
        folder.chmod(0o755)
    tmp_path.chmod(0o777)
    become_root = tmp_path / "become-root"
    binary = tmp_path / "tutti"
    for file, source, mode in (
        (become_root, Path("/usr/bin/setpriv"), 0o4755),
        (binary, TUTTI, 0o755),
    ):
        file.write_bytes(source.read_bytes())
        file.chmod(mode)
    place = tmp_path / "pid"
    script = f"""
setsid {become_root} --reuid=0 sh -c 'echo $$ > {place}; exec sleep 1000' > /dev/null 2>&1 &
while ! [ -s {place} ]; do sleep 0.01; done
"""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*nobody, binary, "run", "--no-cgroup", "--json", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    survivor = int(place.read_text())
    os.kill(survivor, signal.SIGKILL)
    assert done.returncode == 1
    assert f"still alive: processes {survivor} (sleep, state S) are another user's" in done.stderr
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert (verdict["end"], str(survivor) in verdict["still_alive"]) == ("finished", True)
