"""Four agents in network namespaces, real wires between them: one is cut off, one is killed."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespace_tools import WiredCluster, WiredMachine
from run_tools import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")

RANKS = 4
JOB = f"""
name = "sleepers"

[gang.worker]
count = {RANKS}
command = ["sleep", "1000"]
restarts = {{ delay = "10ms" }}
"""
NAMES = ("two", "three", "four", "five")


@pytest.fixture
def wired() -> Iterator[WiredCluster]:
    cluster = WiredCluster(uuid.uuid4().hex)
    yield cluster
    cluster.end()


def hosts_of(cluster: WiredCluster, job: int) -> dict[int, str]:
    """Where each rank runs."""
    processes = cluster.head.json("ps", str(job))
    return {
        process["rank"]: process["host"] for process in processes if process["state"] == "running"
    }


def alive(cluster: WiredCluster, name: str) -> bool:
    hosts = cluster.head.json("status")["hosts"]
    return next(host["alive"] for host in hosts if host["name"] == name)


def wait_until_it_runs_without(cluster: WiredCluster, job: int, *gone: str) -> None:
    def runs() -> bool:
        places = hosts_of(cluster, job)
        return len(places) == RANKS and not set(places.values()) & set(gone)

    wait_until(runs, f"all ranks run on other hosts than {gone}")


def sleeps(machine: WiredMachine) -> bool:
    return any("sleep" in command for command in machine.commands())


def test_a_host_cut_off_and_a_host_killed_are_replaced_and_nothing_is_left(
    wired: WiredCluster, tmp_path: Path
) -> None:
    machines = {name: wired.join(name, 2) for name in NAMES}
    (tmp_path / "sleepers.toml").write_text(JOB)
    job = int(wired.head.well("submit", tmp_path / "sleepers.toml"))
    wait_until(lambda: len(hosts_of(wired, job)) == RANKS, "all ranks run")
    used = sorted(set(hosts_of(wired, job).values()) & set(NAMES))

    cut = used[0]
    wired.wires.cut(machines[cut].namespace)
    wait_until(lambda: not alive(wired, cut), f"{cut} is lost")
    wait_until_it_runs_without(wired, job, cut)

    killed = sorted(set(hosts_of(wired, job).values()) & set(NAMES))[0]
    machines[killed].die()
    wait_until(lambda: not alive(wired, killed), f"{killed} is lost")
    wait_until_it_runs_without(wired, job, cut, killed)
    assert wired.head.job(job)["restarts"] == 2

    # It comes back, hears that its ranks are of an epoch that is over, and ends them.
    wired.wires.mend(machines[cut].namespace)
    wait_until(lambda: alive(wired, cut), f"{cut} is back")
    wait_until(lambda: not sleeps(machines[cut]), f"the old ranks of {cut} are gone")

    wired.head.well("kill", str(job))
    wired.head.wait_for(job, "killed")
    for machine in machines.values():
        assert not sleeps(machine)
