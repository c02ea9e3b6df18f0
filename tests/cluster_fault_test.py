"""A cluster whose programs are killed while a job runs: the job goes on, and its end is told."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

# Rank 0 is the one that may fail, when the other has said its last.
WAITING = """
echo begun
until [ -e {flag} ]; do sleep 0.02; done
echo done
[ $RANK = 1 ] && {{ touch {flag}.said; exit 0; }}
until [ -e {flag}.said ]; do sleep 0.02; done
exit {code}
"""


class Job:
    """A run of two ranks that go on until they are told to end."""

    def __init__(self, machine: Machine, folder: Path, code: int) -> None:
        self.machine = machine
        self.flag = folder / "flag"
        script = WAITING.format(flag=self.flag, code=code)
        self.run = machine.start("run", "-n", "2", "--", "sh", "-c", script)
        assert self.run.stdout is not None
        assert {self.run.stdout.readline() for _ in range(2)} == {"[0] begun\n", "[1] begun\n"}
        machine.wait_for(1, "running")
        self.pids = self.processes()

    def processes(self) -> list[int]:
        return [process["pid"] for process in self.machine.json("ps")]

    def end(self) -> tuple[int, str, str]:
        self.flag.touch()
        output, error = self.run.communicate()
        return self.run.returncode, output, error


@pytest.mark.parametrize("killed", [("agent",), ("head",), ("agent", "head")], ids=" and ".join)
@pytest.mark.parametrize("code", [0, 5])
def test_a_job_goes_on_when_programs_are_killed_and_started_again(
    machine: Machine, tmp_path: Path, killed: tuple[str, ...], code: int
) -> None:
    job = Job(machine, tmp_path, code)
    machine.kill_hard(*killed)
    machine.well("up")
    wait_until(lambda: job.processes() == job.pids, "its processes are found again")
    returned, output, error = job.end()
    assert returned == code, error + machine.logs()
    assert sorted(output.splitlines()) == ["[0] done", "[1] done"]
    assert machine.job(1)["state"] == ("succeeded" if code == 0 else "failed")
    assert machine.job(1)["restarts"] == 0


def test_what_ended_while_nobody_looked_is_told(machine: Machine, tmp_path: Path) -> None:
    job = Job(machine, tmp_path, 6)
    machine.kill_hard("agent", "head")
    job.flag.touch()
    for pid in job.pids:
        wait_until(lambda pid=pid: has_ended(pid), f"{pid} has ended")
    machine.well("up")
    returned, output, error = job.end()
    assert returned == 6, error + machine.logs()
    assert sorted(output.splitlines()) == ["[0] done", "[1] done"]


def has_ended(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1]
    except OSError:
        return True


def test_down_after_everything_was_killed_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    job = Job(machine, tmp_path, 0)
    machine.kill_hard("agent", "head")
    machine.well("down")
    for pid in job.pids:
        assert has_ended(pid)
    job.run.kill()
    job.run.communicate()


def test_a_pid_that_was_given_to_another_process_is_never_killed(empty_cluster: Cluster) -> None:
    machine = empty_cluster.head
    machine.well("up", "--name", "one")
    machine.well("down")
    other = subprocess.Popen(["sleep", "1000"])
    try:
        for program in ("head", "agent"):
            (machine.home / program / "pid").write_text(f"{other.pid} 1\n")
        machine.well("down")
        os.kill(other.pid, 0)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_ranks_begin_again_when_their_keeper_is_killed(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('name = "gang"\n[gang.worker]\ncount = 2\ncommand = ["sleep", "1000"]\n')
    machine.well("submit", str(file))
    machine.wait_for(1, "running")
    before = [process["pid"] for process in machine.json("ps")]
    os.kill(parent_of(before[0]), signal.SIGKILL)
    wait_until(lambda: machine.job(1)["restarts"] == 1, "it is started again")
    machine.wait_for(1, "running")
    after = [process["pid"] for process in machine.json("ps")]
    assert len(after) == 2
    assert not set(after) & set(before)


def test_with_its_head_away_commands_say_so_and_run_nothing_beside_it(machine: Machine) -> None:
    machine.kill_hard("head")
    done = machine("run", "--", "true")
    assert done.returncode != 0
    assert "is away, and its jobs go on; start it again with `tutti up`" in done.stderr
    assert "--local" in done.stderr
    assert "is away" in machine("status").stderr
    assert machine("run", "--local", "--", "true").returncode == 0
    machine.well("up")
    machine.well("run", "--", "true")


def test_a_job_that_has_ended_takes_no_signals(machine: Machine) -> None:
    machine.well("run", "--", "true")
    done = machine("signal", "1", "TERM")
    assert done.returncode != 0
    assert "job 1 has ended" in done.stderr


@pytest.mark.parametrize("again", ["", "(sleep 0.5; while kill -STOP $keeper; do :; done) &"])
def test_a_job_whose_keeper_is_stopped_ends_in_its_time(machine: Machine, again: str) -> None:
    script = f"keeper=$PPID; {again} exec sleep 1000"
    job = machine.submit(script)
    machine.wait_for(job, "running")
    rank = machine.json("ps")[0]["pid"]
    time.sleep(1 if again else 0)
    os.kill(parent_of(rank), signal.SIGSTOP)
    machine.well("kill", "--grace", "100ms", str(job))
    assert machine.job(job)["state"] == "killed"
    assert has_ended(rank)
    assert "leftovers" not in machine.job(job)
    machine.well("run", "--", "true")


def test_what_a_stopped_keeper_did_not_tell_is_told_soon(machine: Machine, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    job = machine.submit(f"kill -STOP $PPID; touch {flag}; exit 3")
    wait_until(flag.exists, "the keeper is stopped")
    assert machine.wait_for(job, "failed")["culprit"]["code"] == 3


def test_jobs_on_hosts_that_do_not_answer_are_not_left_out(machine: Machine) -> None:
    job = machine.submit("sleep 1000")
    machine.wait_for(job, "running")
    agent = machine.pid("agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        told = machine.well("ps")
    finally:
        os.kill(agent, signal.SIGCONT)
    assert "nothing runs" not in told
    assert f"what it has of job {job} is not known" in told
    assert "one: " in told


def test_what_the_head_refuses_is_said_without_how_it_was_asked(machine: Machine) -> None:
    for verb in (["kill", "999"], ["jobs", "999"], ["signal", "999", "TERM"], ["ps", "999"]):
        said = machine(*verb).stderr
        assert said == f"tutti {verb[0]}: there is no job 999; see `tutti jobs --all`\n"


def test_why_a_job_did_not_start_begins_with_the_cause(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    missing = tmp_path / "missing"
    file.write_text(f'name = "x"\n[task.x]\ncommand = "true"\nfolder = "{missing}"\n')
    machine.well("submit", str(file))
    job = machine.wait_for(1, "failed")
    cause = f"folder {missing}: No such file or directory"
    assert job["culprit"]["message"] in job["why"]
    assert cause in job["why"].partition("not started")[0], job["why"]
    assert cause in machine.well("jobs", "1")


def test_a_job_without_a_culprit_says_so(machine: Machine) -> None:
    machine.well("run", "--", "true")
    assert machine.job(1)["culprit"] is None
