"""What cannot be ended is told by name, and its slots are given to nobody until it is gone."""

import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

NOBODY = 65534


class Stuck:
    """A job of an ordinary user that became root in between, as sudo does: nobody may end it."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.place = folder / "pid"
        become_root = shutil.copy(shutil.which("setpriv"), folder / "become-root")
        become_root.chmod(0o4755)
        script = f"""
as_root="echo \\$\\$ > {self.place}; exec sleep 1000"
[ $RANK = 0 ] && setsid {become_root} --reuid=0 sh -c "$as_root" >&- 2>&- &
while ! [ -s {self.place} ]; do sleep 0.01; done
sleep 1000
"""
        self.job = machine.submit(script, "-n", "3", "--grace", "100ms")
        wait_until(lambda: self.place.exists() and self.place.read_text() != "", "it is root")
        self.pid = int(self.place.read_text())

    def host(self) -> dict:
        return self.machine.json("status")["hosts"][0]

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    if os.geteuid() != 0:
        pytest.skip("only root can make what another user may not end")
    cluster = Cluster(uuid.uuid4().hex)
    machine = cluster.head
    machine.become(NOBODY, tmp_path)
    machine.well("up", "--name", "one", "--slots", "8")
    stuck = Stuck(machine, tmp_path)
    yield stuck
    cluster.end()


def test_slots_of_what_cannot_be_ended_are_free_when_it_is_gone(stuck: Stuck) -> None:
    machine = stuck.machine
    machine.well("kill", str(stuck.job))
    what = f"processes {stuck.pid} (sleep, state S) are another user's and may not be ended"
    assert machine.job(stuck.job)["leftovers"] == [what]
    assert stuck.host()["free"] == 5
    assert stuck.host()["leftovers"] == [{"job": stuck.job, "what": what}]
    assert f"one: job {stuck.job} is over, but {what}" in machine.well("status")
    assert f"one: of job {stuck.job}, {what}" in machine.well("ps")
    waiting = machine.submit("true", "-n", "6")
    assert machine.job(waiting)["state"] == "queued"
    stuck.end()
    machine.wait_for(waiting, "succeeded")
    wait_until(lambda: stuck.host()["free"] == 8, "all slots are free")
    assert stuck.host()["leftovers"] == []
    assert "leftovers" not in machine.job(stuck.job)


@pytest.mark.parametrize("killed", [("agent",), ("head",), ("agent", "head")], ids=" and ".join)
def test_slots_are_held_when_programs_are_killed_and_started_again(
    stuck: Stuck, killed: tuple[str, ...]
) -> None:
    machine = stuck.machine
    machine.well("kill", str(stuck.job))
    machine.kill_hard(*killed)
    machine.well("up")
    wait_until(lambda: stuck.host()["alive"], "it is back")
    assert stuck.host()["free"] == 5
    stuck.end()
    wait_until(lambda: stuck.host()["free"] == 8, "all slots are free")
