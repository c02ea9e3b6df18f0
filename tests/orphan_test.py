"""The orphan hunt: whatever processes of a job do to outlive it, nothing of them is left."""

import os
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

ESCAPEE = Path(__file__).with_name("escapee.py")
PYTHON = Path(sys.executable).resolve()
NOBODY = 65534


class Hunt:
    """A machine whose user is the given one, and the book in which its processes write."""

    def __init__(self, machine: Machine, folder: Path, user: int) -> None:
        self.machine = machine
        self.book = folder / "book"
        self.script = folder / "escapee.py"
        shutil.copy(ESCAPEE, self.script)
        if user != 0:
            machine.become(user, folder)
        machine.well("up", "--name", "one", "--slots", "8")

    def submit(self, way: str) -> int:
        command = ["--", str(PYTHON), str(self.script), str(self.book), way]
        job = int(self.machine.well("submit", "--grace", "100ms", *command))
        wait_until(lambda: Path(f"{self.book}.hidden").exists(), "they have hidden")
        return job

    def living(self) -> list[str]:
        found = []
        for line in self.book.read_text().splitlines():
            pid, started = line.split()
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue
            state, *fields = stat.rpartition(") ")[2].split()
            if fields[18] == started and state != "Z":
                found.append(stat)
        return found

    def nothing_is_left(self) -> None:
        assert len(self.book.read_text().splitlines()) >= 200
        assert self.living() == []


@pytest.fixture(params=[0, NOBODY], ids=["root", "nobody"])
def hunt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hunt]:
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    cluster = Cluster(uuid.uuid4().hex)
    hunt = Hunt(cluster.head, tmp_path, request.param)
    yield hunt
    survivors = hunt.living()
    for stat in survivors:
        os.kill(int(stat.split()[0]), signal.SIGKILL)
    cluster.end()
    assert survivors == []


def test_nothing_is_left_of_a_job_that_was_killed(hunt: Hunt) -> None:
    job = hunt.submit("stay")
    assert hunt.living()
    assert hunt.machine.json("kill", str(job))["state"] == "killed"
    hunt.nothing_is_left()


def test_nothing_is_left_of_a_job_that_has_finished(hunt: Hunt) -> None:
    job = hunt.submit("finish")
    hunt.machine.wait_for(job, "succeeded")
    hunt.nothing_is_left()


def test_nothing_is_left_when_the_agent_was_killed_before(hunt: Hunt) -> None:
    job = hunt.submit("stay")
    hunt.machine.kill_hard("agent")
    assert hunt.living()
    hunt.machine.well("up")
    assert hunt.machine.json("kill", str(job))["state"] == "killed"
    hunt.nothing_is_left()


@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "nobody"])
def test_what_a_killed_keeper_leaves_is_ended(tmp_path: Path, user: int) -> None:
    """A daemon that left its session and its parents, and then kills the keeper."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    cluster = Cluster(uuid.uuid4().hex)
    machine = cluster.head
    if user != 0:
        machine.become(user, tmp_path)
    machine.well("up", "--name", "one", "--slots", "2")
    note = tmp_path / "daemon"
    script = (
        f"setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000' & "
        f"while [ ! -e {note} ]; do sleep 0.01; done; kill -9 $PPID; sleep 1000"
    )
    try:
        job = int(machine.well("submit", "--", "sh", "-c", script))
        machine.wait_for(job, "failed")
        assert not Path(f"/proc/{note.read_text().strip()}").exists()
        assert machine.json("status")["hosts"][0]["free"] == 2
    finally:
        cluster.end()


@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "nobody"])
def test_what_an_agent_leaves_that_is_killed_with_its_keepers_is_ended(
    tmp_path: Path, user: int
) -> None:
    """Who left the session and lost all parents is nobody's descendant for the next agent."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    cluster = Cluster(uuid.uuid4().hex)
    machine = cluster.head
    if user != 0:
        machine.become(user, tmp_path)
    machine.well("up", "--name", "one", "--slots", "2")
    note = tmp_path / "daemon"
    script = (
        f"(setsid sh -c 'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000' &); "
        f"while [ ! -e {note} ]; do sleep 0.01; done; echo $PPID > {note}.keeper.new; "
        f"mv {note}.keeper.new {note}.keeper; sleep 1000"
    )
    try:
        job = int(machine.well("submit", "--", "sh", "-c", script))
        keeper = Path(f"{note}.keeper")
        wait_until(keeper.exists, "it runs")
        machine.kill_hard("agent", "head")
        os.kill(int(keeper.read_text()), signal.SIGKILL)
        machine.well("up")
        machine.wait_for(job, "failed")
        # Who lost all parents is collected by the machine's first process, if that does so.
        stat = Path(f"/proc/{note.read_text().strip()}/stat")
        assert not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")
        assert machine.json("status")["hosts"][0]["free"] == 2
    finally:
        cluster.end()
