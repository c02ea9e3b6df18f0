"""A preemption: the notice, the time to save, the end; and nothing of it is an error."""

from pathlib import Path

import pytest
from cluster_tools import Machine
from run_tools import wait_until

SAVES = "trap 'echo saved >> {folder}/saved; exit 0' TERM; {loop}"
ENDS_BY_SIGNAL = "{loop}"
IGNORES = "trap 'echo ignored >> {folder}/saved' TERM; {loop}"
LOOP = "touch {folder}/begun.$RANK; while true; do sleep 0.05; done"


def submit(machine: Machine, folder: Path, script: str, notice: str, signal: str) -> int:
    file = folder / "job.toml"
    script = script.format(folder=folder, loop=LOOP.format(folder=folder))
    file.write_text(f'''
        name = "notice"
        notice = "{notice}"
        notice_signal = "{signal}"
        grace = "100ms"
        [service.data]
        command = "trap '' TERM USR1; while true; do sleep 0.05; done"
        [gang.worker]
        count = 2
        restarts = {{ delay = "0s" }}
        command = """{script}"""
    ''')
    job = int(machine.well("submit", file))
    machine.wait_for(job, "running")
    wait_until(lambda: len(list(folder.glob("begun.*"))) == 2, "the workers have begun")
    return job


def saved(folder: Path) -> list[str]:
    file = folder / "saved"
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize(
    ("script", "says"), [(SAVES, ["saved"] * 2), (ENDS_BY_SIGNAL, [])], ids=["saves", "dies"]
)
def test_workers_that_end_within_the_notice_end_the_job_without_an_error(
    machine: Machine, tmp_path: Path, script: str, says: list[str]
) -> None:
    job = submit(machine, tmp_path, script, "1h", "SIGTERM")
    told = machine.well("kill", "--notice", str(job))
    assert told == f"job {job} (notice): killed, preempted\n"
    assert saved(tmp_path) == says
    info = machine.job(job)
    assert (info["state"], info["why"], info["restarts"]) == ("killed", "preempted", 0)
    assert info["ended_by"] == "root"
    assert info["culprit"] is None


def test_a_run_that_is_preempted_says_so(machine: Machine, tmp_path: Path) -> None:
    run = machine.start("run", "--", "sh", "-c", f"touch {tmp_path}/begun; sleep 1000")
    wait_until((tmp_path / "begun").exists, "it has begun")
    job = machine.json("jobs")[0]["job"]
    machine.well("kill", "--notice", str(job))
    told = run.communicate()[1]
    assert "tutti: preempted by root, with `tutti kill --notice`, which gave it 30.0 s" in told
    assert "somebody else" not in told
    assert run.returncode == 128 + 15


def test_a_worker_that_ignores_the_notice_has_its_time_and_is_ended(
    machine: Machine, tmp_path: Path
) -> None:
    job = submit(machine, tmp_path, IGNORES, "500ms", "SIGTERM")
    assert machine.json("kill", "--notice", str(job))["state"] == "killed"
    # The notice, and then the SIGTERM that ends.
    assert sorted(set(saved(tmp_path))) == ["ignored"]
    assert len(saved(tmp_path)) == 4
    assert machine.job(job)["restarts"] == 0


def test_the_notice_may_be_another_signal_and_comes_once(machine: Machine, tmp_path: Path) -> None:
    script = "trap 'echo noticed >> {folder}/saved' USR1; {loop}"
    job = submit(machine, tmp_path, script, "1h", "SIGUSR1")
    preempting = machine.start("kill", "--notice", str(job))
    wait_until(lambda: saved(tmp_path) == ["noticed"] * 2, "both had the notice")
    assert machine.job(job)["why"] == "preempted: ends within 1 h 0 min"
    assert machine.job(job)["state"] == "running"
    machine.kill_hard("agent")
    machine.well("up")
    wait_until(lambda: len(machine.json("ps")) == 3, "its processes are found again")
    # Somebody has no more patience.
    assert machine.json("kill", str(job))["state"] == "killed"
    assert preempting.communicate()[0] == f"job {job} (notice): killed\n"
    assert saved(tmp_path) == ["noticed"] * 2
