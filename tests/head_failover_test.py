"""A head that is killed, and another on the same folder: nothing is lost, history agrees."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

SLOTS = 4
# Says that it begins, and ends when it is told to.
WAITING = 'echo "$TUTTI_JOB" >> {order}; until [ -e {flag} ]; do sleep 0.02; done'
INDEX = "head/jobs.sqlite"


def start(cluster: Cluster, **environment: str) -> Machine:
    machine = cluster.head
    machine.environment |= environment
    machine.well("up", "--name", "one", "--slots", str(SLOTS))
    return machine


def restart_head(machine: Machine, meanwhile: Callable[[Machine], object] | None = None) -> None:
    machine.kill_hard("head")
    if meanwhile is not None:
        meanwhile(machine)
    machine.well("up")


def delete_index(machine: Machine) -> None:
    for file in machine.home.glob(INDEX + "*"):
        file.unlink()


def drop_wal(machine: Machine) -> None:
    """Without it SQLite cannot mend the file."""
    for file in machine.home.glob(INDEX + "-*"):
        file.unlink()


def overwrite_index(machine: Machine) -> None:
    (machine.home / INDEX).write_bytes(b"this is no database\n" * 1000)
    drop_wal(machine)


def damage_index(machine: Machine) -> None:
    with (machine.home / INDEX).open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(3 * 4096))
    drop_wal(machine)


def nothing(machine: Machine) -> None:
    pass


def all_jobs(machine: Machine) -> list[dict]:
    return machine.json("jobs", "--all")


def snapshots(machine: Machine) -> list[str]:
    return sorted(file.name for file in (machine.home / "head/log").glob("snapshot-*"))


def wait_for_index(machine: Machine, count: int) -> None:
    wait_until(lambda: len(all_jobs(machine)) == count, f"{count} jobs are found")


@pytest.mark.parametrize("meanwhile", [nothing, delete_index, overwrite_index, damage_index])
@pytest.mark.parametrize("log_bytes", ["1", "1000000000"], ids=["snapshots", "no-snapshots"])
def test_jobs_outlive_the_head(
    empty_cluster: Cluster,
    tmp_path: Path,
    meanwhile: Callable[[Machine], None],
    log_bytes: str,
) -> None:
    machine = start(empty_cluster, TUTTI_HEAD_LOG_BYTES=log_bytes)
    order, flag = tmp_path / "order", tmp_path / "flag"
    script = WAITING.format(order=order, flag=flag)
    running = [machine.submit(script) for _ in range(SLOTS)]
    for job in running:
        machine.wait_for(job, "running")
    # Each of these takes all slots, so that they run one after the other.
    waiting = [machine.submit(f"[ $RANK = 0 ] && {script}; :", "-n", str(SLOTS)) for _ in range(3)]
    array = machine.start("submit", "--array", "0-4", "--wait", "--", "sh", "-c", script)
    count = len(running) + len(waiting) + 5
    wait_until(lambda: len(all_jobs(machine)) == count, "all are submitted")
    last = machine.submit(script)  # it is durable now, and all that came before it
    count += 1
    pids = sorted(process["pid"] for process in machine.json("ps"))
    before = all_jobs(machine)
    if log_bytes == "1":
        wait_until(lambda: snapshots(machine) != [], "there is a snapshot")

    restart_head(machine, meanwhile)

    wait_until(lambda: all_jobs(machine) == before, f"the jobs are {before} again")
    wait_until(
        lambda: sorted(process["pid"] for process in machine.json("ps")) == pids,
        "its processes are found again",
    )
    flag.touch()
    output, error = array.communicate()
    assert array.returncode == 0, output + error + machine.logs()
    machine.wait_for(last, "succeeded")
    after = all_jobs(machine)
    assert [job["state"] for job in after] == ["succeeded"] * count
    begun = [int(line) for line in order.read_text().split()]
    assert sorted(begun) == sorted(job["job"] for job in after), "each began once"
    assert sorted(begun[: len(running)]) == running
    assert begun[len(running) : len(running) + len(waiting)] == waiting
    restart_head(machine)
    assert all_jobs(machine) == after


@pytest.mark.parametrize("damage", [overwrite_index, damage_index])
def test_a_broken_index_is_set_aside_and_made_anew(
    empty_cluster: Cluster, damage: Callable[[Machine], None]
) -> None:
    machine = start(empty_cluster, TUTTI_HEAD_KEEPS="3")
    machine.well("submit", "--array", "0-9", "--wait", "--", "true")
    wait_for_index(machine, 10)
    machine.well("down")
    damage(machine)
    machine.well("up")
    # There was no snapshot: the log still has what the head has forgotten.
    wait_for_index(machine, 10)
    assert (machine.home / (INDEX + ".broken")).exists()
    assert "begun anew" in machine.logs()


def test_jobs_that_the_head_has_forgotten_are_found(empty_cluster: Cluster) -> None:
    machine = start(empty_cluster, TUTTI_HEAD_KEEPS="2", TUTTI_HEAD_LOG_BYTES="1")
    machine.well("submit", "--array", "0-5", "--wait", "--", "true")
    assert machine("submit", "--wait", "--", "false").returncode == 1
    machine.well("submit", "--array", "0-5", "--wait", "--", "true")
    wait_for_index(machine, 13)
    before = all_jobs(machine)
    assert [job["job"] for job in before] == list(range(13, 0, -1))
    assert [job["job"] for job in before if job["state"] == "failed"] == [7]
    assert machine.json("jobs", "7")[0]["state"] == "failed"

    restart_head(machine)

    wait_until(lambda: all_jobs(machine) == before, "the history is the same")
    failed = machine.json("jobs", "--state", "failed,timed-out", "--since", "1h")
    assert [job["job"] for job in failed] == [7]
    named = machine.json("jobs", "--all", "--name", "true.?", "--limit", "3")
    assert [job["job"] for job in named] == [13, 12, 11]
    user = before[0]["user"]
    assert machine.json("jobs", "--all", "--user", user) == before
    assert machine.json("jobs", "--all", "--user", "nobody-else") == []
    assert machine.json("jobs", "--name", "true*") == []
    assert machine.well("jobs", "--state", "running") == "no such jobs\n"


def test_without_its_index_the_head_still_knows_what_it_keeps(empty_cluster: Cluster) -> None:
    machine = start(empty_cluster, TUTTI_HEAD_KEEPS="2", TUTTI_HEAD_LOG_BYTES="1")
    machine.well("submit", "--array", "0-9", "--wait", "--", "true")
    wait_for_index(machine, 10)
    wait_until(lambda: snapshots(machine) != [], "there is a snapshot")
    before = all_jobs(machine)
    restart_head(machine, delete_index)
    wait_until(lambda: (machine.home / INDEX).exists(), "it is made again")
    after = all_jobs(machine)
    kept = sorted(before, key=lambda job: job["ended"])[-2:]
    assert all(job in after for job in kept)
    assert all(job in before for job in after)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--state", "faild"], "did you mean failed?"),
        (["--state", "failed,"], "the states are queued, starting"),
        (["--since", "yesterday"], "such as 30m, 2h or 7d"),
        (["--limit", "0"], "1 to 5000 jobs"),
        (["--limit", "many"], "--limit"),
    ],
)
def test_a_filter_that_makes_no_sense_says_so(
    machine: Machine, words: list[str], said: str
) -> None:
    done = machine("jobs", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_kill_that_was_answered_outlives_the_head(empty_cluster: Cluster) -> None:
    machine = start(empty_cluster)
    job = machine.submit("sleep 1000")
    machine.wait_for(job, "running")
    log = machine.home / "head/log"
    agent = machine.pid("agent")
    os.kill(agent, signal.SIGSTOP)  # nobody hears of the kill but the head
    try:
        kill = machine.start("kill", str(job))
        wait_until(
            lambda: any(b"killed" in file.read_bytes() for file in log.iterdir()),
            "the kill is in the log",
        )
        machine.kill_hard("head")
    finally:
        os.kill(agent, signal.SIGCONT)
    machine.well("up")
    machine.wait_for(job, "killed")
    kill.communicate()  # it may have been answered or not
    wait_until(lambda: machine.json("ps") == [], "nothing of it is left")


def test_a_job_that_waits_and_is_killed_never_begins(
    empty_cluster: Cluster, tmp_path: Path
) -> None:
    machine = start(empty_cluster)
    first = machine.submit("sleep 1000", "-n", str(SLOTS))
    machine.wait_for(first, "running")
    second = machine.submit(f"touch {tmp_path}/begun")
    machine.well("kill", str(second))
    restart_head(machine)
    assert machine.job(second)["state"] == "killed"
    machine.well("kill", str(first))
    assert not (tmp_path / "begun").exists()
