"""The agent is killed at every step of a launch: nothing starts twice, nothing is lost or left."""

import ctypes
import fcntl
import mmap
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import marked, wait_until

SHIM = Path(__file__).with_name("die_at_step.c")
LEAST_STEPS = 8
MOST_STEPS = 60

# A task, then a service, then a gang with a sidecar. Each says who it is and waits for the lock.
JOB = """
name = "launch"
folder = "{folder}"
grace = "1s"
[task.prepare]
restarts = {{ killed = 100, delay = "10ms" }}
command = "echo $TUTTI_PROCESS $TUTTI_EPOCH $$ >> starts"
[service.data]
needs = ["prepare"]
command = "echo $TUTTI_PROCESS $TUTTI_EPOCH $$ >> starts; exec sleep 1000"
[gang.worker]
count = 3
restarts = {{ killed = 100, delay = "10ms" }}
needs = ["data"]
command = "echo $TUTTI_PROCESS $TUTTI_EPOCH $$ >> starts; exec flock --shared lock true"
[sidecar.watcher]
beside = "worker"
command = "echo $TUTTI_PROCESS $TUTTI_EPOCH $$ >> starts; exec sleep 1000"
"""
PROCESSES = 8


class Steps:
    """How many steps the program has left to live, in a page that it maps too."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), 8)
        self.left = ctypes.c_int64.from_buffer(self.page)

    def allow(self, steps: int) -> None:
        self.left.value = steps


class Launch:
    """One job, in a folder of its own."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        folder.mkdir()
        self.starts_file = folder / "starts"
        self.starts_file.touch()
        self.lock = (folder / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        (folder / "job.toml").write_text(JOB.format(folder=folder))
        self.number = int(machine.well("submit", str(folder / "job.toml")))

    def starts(self) -> list[tuple[int, int, int]]:
        """Process, epoch and pid of everything that ever began."""
        lines = self.starts_file.read_text().splitlines()
        return [(int(a), int(b), int(c)) for a, b, c in map(str.split, lines)]

    def pids(self) -> dict[int, int]:
        """Of each process, the one that began last."""
        return {process: pid for process, _, pid in self.starts()}

    def is_launched(self) -> bool:
        """As the head knows it: asking the agent would make it take steps."""
        return self.machine.job(self.number)["state"] == "running"

    def wait_until_all_run(self) -> None:
        def all_run() -> bool:
            listed = {
                p["process"]: p["pid"]
                for p in self.machine.json("ps")
                if p["job"] == self.number and p["state"] == "running"
            }
            begun = self.pids()
            return len(begun) == PROCESSES and listed == {p: begun[p] for p in range(1, PROCESSES)}

        wait_until(all_run, f"all of {self.starts_file} run")

    def end(self) -> dict:
        self.lock.close()
        wait_until(lambda: self.machine.job(self.number)["ended"], "the job ends")
        return self.machine.job(self.number)

    def check(self, before: list[tuple[int, int, int]]) -> None:
        """Whatever had begun when the agent was started again goes on to the end."""
        self.wait_until_all_run()
        began = self.starts()
        twice = [who for who, n in Counter((p, e) for p, e, _ in began).items() if n > 1]
        assert not twice, began
        assert began[: len(before)] == before
        pids = self.pids()
        for process, _, pid in before:
            assert pids[process] == pid, (before, began)
        over = self.end()
        assert over["state"] == "succeeded", over
        assert self.starts() == began
        for _, _, pid in began:
            wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"{pid} is gone")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "die_at_step.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
    return library


class Doomed:
    """A cluster one of whose programs can be killed at the n-th step it takes from now on."""

    def __init__(self, cluster: Cluster, shim: Path, folder: Path, program: str) -> None:
        self.mark = cluster.mark
        self.machine = cluster.head
        self.folder = folder
        self.steps = Steps(folder / "steps")
        self.machine.environment |= {
            "LD_PRELOAD": str(shim),
            "DIE_PROGRAM": program,
            "DIE_STEPS": str(folder / "steps"),
        }
        self.machine.well("up", "--name", "one", "--slots", "8")

    def launch(self, step: int) -> tuple[Launch, bool]:
        """A launch, and whether it was over before its so-many-th step."""
        self.steps.allow(step)
        launch = Launch(self.machine, self.folder / f"step{step}")
        died = lambda: self.steps.left.value == 0  # noqa: E731
        wait_until(lambda: died() or launch.is_launched(), f"step {step}, or the end of the launch")
        over = not died()
        if over:
            self.steps.allow(0)
        return launch, over

    def keepers(self) -> list[str]:
        return [line for line in marked(self.mark) if " keeper " in line]


@pytest.mark.parametrize("also", [(), ("head",)], ids=["agent", "agent and head"])
def test_an_agent_killed_at_any_step_of_a_launch(
    empty_cluster: Cluster, shim: Path, tmp_path: Path, also: tuple[str, ...]
) -> None:
    doomed = Doomed(empty_cluster, shim, tmp_path, "agent")
    machine = doomed.machine
    for step in range(1, MOST_STEPS):
        agent = machine.pid("agent")
        launch, over = doomed.launch(step)
        if not over:
            wait_until(lambda: not runs(agent), "the agent is dead")  # noqa: B023
            machine.kill_hard(*also)
        before = launch.starts()
        machine.well("up")
        launch.check(before)
        assert machine.job(launch.number)["restarts"] == 0
        if over:
            break
    assert LEAST_STEPS < step < MOST_STEPS - 1
    wait_until(lambda: len(doomed.keepers()) <= 2, "no keeper is left over")


def test_a_keeper_killed_at_any_step_of_a_launch(
    empty_cluster: Cluster, shim: Path, tmp_path: Path
) -> None:
    doomed = Doomed(empty_cluster, shim, tmp_path, "keeper")
    for step in range(1, MOST_STEPS):
        launch, over = doomed.launch(step)
        launch.check([])
        # Whoever was below the keeper that died has died with it.
        assert all(not runs(pid) for _, _, pid in launch.starts())
        if over:
            break
    assert LEAST_STEPS < step < MOST_STEPS - 1


def test_a_job_that_may_not_begin_again_fails_with_its_keeper(
    machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'name = "once"\n[gang.worker]\ncount = 2\ncommand = ["sleep", "1000"]\n'
        "restarts = { killed = 0 }\n"
    )
    number = int(machine.well("submit", str(file)))
    machine.wait_for(number, "running")
    pids = [process["pid"] for process in machine.json("ps")]
    keeper = int(Path(f"/proc/{pids[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(keeper, signal.SIGKILL)
    over = machine.wait_for(number, "failed")
    assert "killed: its keeper ended" in over["why"]
    assert not any(runs(pid) for pid in pids)


def runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1]
    except OSError:
        return False
