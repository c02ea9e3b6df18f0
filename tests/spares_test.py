"""Warm spares: a rank that is killed goes on in a process that was there before."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster_tools import Machine
from run_tools import wait_until

ROOT = Path(__file__).resolve().parent.parent

# When and where it was imported.
HEAVY = """
import os, time
time.sleep(0.2)
IMPORTED = time.time()
PID = os.getpid()
"""

WORKER = """
import json, os, sys, time
began = time.time()
import heavy, tutti
rank = os.environ["RANK"]
page = tutti.control.page()
about = {
    "pid": os.getpid(), "imported": heavy.IMPORTED, "imported_by": heavy.PID, "began": began,
    "argv": sys.argv[1:], "page": page.rank, "epoch": page.epoch, "life": os.environ["TUTTI_EPOCH"],
    "port": os.environ["MASTER_PORT"], "spare": os.environ.get("TUTTI_SPARE"),
}
print(f"rank {rank} runs", flush=True)
tutti.exchange.barrier("all run")
with open(f"life.{rank}.new", "w") as file:
    json.dump(about, file)
os.rename(f"life.{rank}.new", f"life.{rank}")
while not os.path.exists("end"):
    time.sleep(0.02)
print(f"rank {rank} ends", flush=True)
"""


@pytest.fixture
def machine(machine: Machine) -> Machine:
    machine.environment["PYTHONPATH"] = str(ROOT / "python")
    return machine


def job_file(folder: Path, spares: int = 2, strategy: str = "one_for_one", more: str = "") -> Path:
    (folder / "heavy.py").write_text(HEAVY)
    (folder / "work.py").write_text(WORKER)
    command = json.dumps([sys.executable, "-u", "work.py", "--fast"])
    path = folder / "job.toml"
    path.write_text(
        f"""
        name = "spares"
        folder = {json.dumps(str(folder))}
        {more}
        [gang.worker]
        count = 3
        command = {command}
        strategy = "{strategy}"
        spares = {spares}
        preload = ["heavy"]
        restarts = {{ delay = "0s" }}
        """
    )
    return path


def lives(folder: Path) -> dict[int, dict]:
    return {int(path.suffix[1:]): json.loads(path.read_text()) for path in folder.glob("life.?")}


def spares_of(machine: Machine) -> list[dict]:
    return [process for process in machine.json("ps") if process["spare"]]


def ranks_of(machine: Machine) -> dict[int, dict]:
    return {process["rank"]: process for process in machine.json("ps") if not process["spare"]}


def all_ready(machine: Machine, count: int) -> None:
    wait_until(
        lambda: [spare["state"] for spare in spares_of(machine)] == ["ready"] * count,
        f"{count} spares are ready",
    )


def test_a_spare_takes_the_place_of_a_killed_rank(machine: Machine, tmp_path: Path) -> None:
    run = machine.start("run", job_file(tmp_path, strategy="one_for_all"))
    wait_until(lambda: len(lives(tmp_path)) == 3, "all ranks run")
    all_ready(machine, 2)
    assert "2 spares ready" in machine.well("ps")
    waiting = {spare["pid"] for spare in spares_of(machine)}
    first = lives(tmp_path)
    killed_at = time.time()
    os.kill(first[1]["pid"], signal.SIGKILL)
    for rank in range(3):
        wait_until(
            lambda rank=rank: lives(tmp_path)[rank]["pid"] != first[rank]["pid"],
            f"rank {rank} runs again",
        )
    second = lives(tmp_path)
    # All three are started again; two of them had their imports done before the death.
    taken = {rank for rank, life in second.items() if life["pid"] in waiting}
    assert len(taken) == 2
    for rank, life in second.items():
        assert life["imported_by"] == life["pid"]
        assert (life["imported"] < killed_at) == (rank in taken)
        assert life["page"] == rank
        assert str(life["epoch"]) == life["life"] != first[rank]["life"]
        assert life["port"] == second[0]["port"]
        assert life["argv"] == ["--fast"]
        assert life["spare"] is None
    shown = ranks_of(machine)
    assert {rank for rank, process in shown.items() if process["from_spare"]} == taken
    assert "running, was a spare" in machine.well("ps")
    # Those that were used are replaced.
    all_ready(machine, 2)
    assert not waiting & {spare["pid"] for spare in spares_of(machine)}
    (tmp_path / "end").touch()
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors + machine.logs()
    ends = sorted(line for line in output.splitlines() if line.endswith("ends"))
    assert ends == [f"[{rank}] rank {rank} ends" for rank in range(3)]
    assert machine.job(1)["restarts"] == 1


def test_without_a_living_spare_a_rank_starts_cold(machine: Machine, tmp_path: Path) -> None:
    job = int(machine.well("submit", job_file(tmp_path)))
    wait_until(lambda: len(lives(tmp_path)) == 3, "all ranks run")
    all_ready(machine, 2)
    first = lives(tmp_path)
    for spare in spares_of(machine):
        os.kill(spare["pid"], signal.SIGKILL)
    os.kill(first[2]["pid"], signal.SIGKILL)
    wait_until(lambda: ranks_of(machine)[2]["pid"] != first[2]["pid"], "rank 2 is started again")
    machine.well("kill", str(job), "--grace", "0")
    wait_until(lambda: machine.job(job)["state"] == "killed", "it is over")


def test_spares_outlive_the_agent_and_are_used_by_the_next(
    machine: Machine, tmp_path: Path
) -> None:
    job = int(machine.well("submit", job_file(tmp_path, strategy="one_for_all")))
    wait_until(lambda: len(lives(tmp_path)) == 3, "all ranks run")
    all_ready(machine, 2)
    waiting = {spare["pid"] for spare in spares_of(machine)}
    first = lives(tmp_path)
    machine.kill_hard("agent")
    os.kill(first[0]["pid"], signal.SIGKILL)
    machine.well("up")
    wait_until(
        lambda: all(lives(tmp_path)[rank]["pid"] != first[rank]["pid"] for rank in range(3)),
        "all run again",
    )
    assert len(waiting & {life["pid"] for life in lives(tmp_path).values()}) == 2
    (tmp_path / "end").touch()
    machine.wait_for(job, "succeeded")


def test_spares_that_are_ready_take_the_first_start_too(machine: Machine, tmp_path: Path) -> None:
    path = job_file(tmp_path)
    text = path.read_text().replace("count = 3", 'count = 3\n        needs = ["prepare"]')
    prepare = '[task.prepare]\n        command = "until [ -e go ]; do sleep 0.02; done"\n'
    path.write_text(text + prepare)
    job = int(machine.well("submit", path))
    all_ready(machine, 2)
    waiting = {spare["pid"] for spare in spares_of(machine)}
    (tmp_path / "go").touch()
    wait_until(lambda: len(lives(tmp_path)) == 3, "all ranks run")
    assert waiting < {life["pid"] for life in lives(tmp_path).values()}
    (tmp_path / "end").touch()
    assert machine.wait_for(job, "succeeded")["restarts"] == 0
    for pid in waiting:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_command_that_cannot_wait_has_no_spares(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "x"\n[gang.worker]\ncommand = "python train.py"\nspares = 1\n')
    refused = machine("submit", path)
    assert refused.returncode != 0
    assert "'gang.worker.spares' is for Python programs" in refused.stderr


def test_a_module_can_wait_too(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "tutti.spare", "-m", "work", "a"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "__main__ ['a']\n"


def test_a_rank_that_hangs_goes_on_in_a_spare(machine: Machine, tmp_path: Path) -> None:
    file = job_file(tmp_path, spares=1)
    more = 'hang_after = "1s"\n        restarts = { delay = "200ms" }'
    file.write_text(file.read_text().replace('restarts = { delay = "0s" }', more))
    job = int(machine.well("submit", file))
    wait_until(
        lambda: any(rank["from_spare"] for rank in ranks_of(machine).values()),
        "a spare took the place of one that made no progress",
    )
    machine.well("kill", str(job))
    machine.wait_for(job, "killed")
