"""Four agents in network namespaces, real wires between them: one is cut off, one is killed."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from namespace_tools import WiredCluster, WiredMachine
from run_tools import ROOT, wait_until

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


PRINTING = '''
name = "printers"

[gang.worker]
count = 2
command = ["sh", "-c", """
echo $RANK begins $TUTTI_EPOCH
until [ -e {stop} ]; do sleep 0.05; done
echo $RANK ends $TUTTI_EPOCH
"""]
restarts = {{ delay = "10ms" }}
'''
READ = """
import tutti
with tutti.Cluster() as cluster:
    for line in cluster.job({job}).output():
        print(line.text)
"""


def test_what_a_host_prints_is_read_when_it_is_lost_and_given_back(
    wired: WiredCluster, tmp_path: Path
) -> None:
    machines = {name: wired.join(name, 1) for name in ("two", "three")}
    stop = tmp_path / "stop"
    file = tmp_path / "printers.toml"
    file.write_text(PRINTING.format(stop=stop))
    run = wired.head.start("run", "--no-prefix", file)
    wait_until(lambda: bool(wired.head.json("jobs")), "it is submitted")
    wait_until(lambda: len(hosts_of(wired, 1)) == 2, "both ranks run")
    first = (set(hosts_of(wired, 1).values()) - {"one"}).pop()
    second = ({"two", "three"} - {first}).pop()
    wired.wires.cut(machines[first].namespace)
    wait_until(lambda: set(hosts_of(wired, 1).values()) == {"one", second}, "it has moved")
    wired.wires.mend(machines[first].namespace)
    wait_until(lambda: alive(wired, first), "the first is back")
    wait_until(lambda: not any("sleep" in c for c in machines[first].commands()), "and empty")
    machines[second].kill_hard("agent")
    wait_until(lambda: set(hosts_of(wired, 1).values()) == {"one", first}, "it has moved back")
    machines[second].well("up")
    stop.touch()
    output, error = run.communicate()
    assert run.returncode == 0, error
    epoch = max(int(line.split()[2]) for line in output.splitlines())
    whole = {f"{rank} {what} {epoch}" for rank in (0, 1) for what in ("begins", "ends")}
    told = [line for line in output.splitlines() if line.endswith(str(epoch))]
    assert sorted(told) == sorted(whole), output + error
    read = subprocess.run(
        ["ip", "netns", "exec", wired.head.namespace, sys.executable, "-c", READ.format(job=1)],
        env=wired.head.environment | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert whole <= set(read.stdout.splitlines()), read.stdout + read.stderr
