"""Ranks that meet through their agents, while programs around them are killed."""

import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

ROOT = Path(__file__).resolve().parent.parent
RANKS = 16


@pytest.fixture
def four_hosts(empty_cluster: Cluster) -> Cluster:
    """Four machines with four slots each; what they start finds our package."""
    empty_cluster.head.well("up", "--slots", "4")
    for name in ("b", "c", "d"):
        empty_cluster.join(name, 4)
    empty_cluster.head.environment["PYTHONPATH"] = str(ROOT / "python")
    return empty_cluster


SAY = """
import os
def say(text):
    with open(f"said.{os.environ['RANK']}", "a") as file:
        print(text, file=file)
"""


def said(folder: Path) -> dict[int, list[str]]:
    return {int(path.suffix[1:]): path.read_text().splitlines() for path in folder.glob("said.*")}


def job_file(folder: Path, script: str, **keys) -> Path:
    (folder / "rank.py").write_text(SAY + textwrap.dedent(script))
    lines = [
        'name = "exchange"',
        f"folder = {json.dumps(str(folder))}",
        "[gang.worker]",
        f"command = {json.dumps([sys.executable, '-u', 'rank.py'])}",
    ]
    lines += [f"{key} = {value}" for key, value in ({"count": RANKS} | keys).items()]
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def submit(machine: Machine, path: Path) -> int:
    return int(machine.well("submit", path))


ALL_TO_ALL = """
    import os, pathlib, time, tutti
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    exchange = tutti.exchange
    exchange.put(f"name/{rank}", f"I am {rank}".encode())
    for other in range(size):
        assert exchange.get(f"name/{other}") == f"I am {other}".encode()
    for step in range(3):
        exchange.barrier("step")
    pathlib.Path(f"met.{rank}").touch()
    # The last comes when it is told to.
    while rank == size - 1 and not os.path.exists("go"):
        time.sleep(0.02)
    pathlib.Path(f"waits.{rank}").touch()
    exchange.barrier("end")
    exchange.put(f"name/{rank}", b"again")
    say(exchange.get(f"name/{rank}").decode())
"""


def count(folder: Path, pattern: str) -> int:
    return len(list(folder.glob(pattern)))


def test_sixteen_ranks_on_four_hosts_meet(four_hosts: Cluster, tmp_path: Path) -> None:
    job = submit(four_hosts.head, job_file(tmp_path, ALL_TO_ALL))
    (tmp_path / "go").touch()
    four_hosts.head.wait_for(job, "succeeded")
    assert said(tmp_path) == {rank: ["again"] for rank in range(RANKS)}


@pytest.mark.parametrize("victims", ["coordinator", "another", "all", "head"])
def test_ranks_that_wait_outlive_their_agents(
    four_hosts: Cluster, tmp_path: Path, victims: str
) -> None:
    job = submit(four_hosts.head, job_file(tmp_path, ALL_TO_ALL))
    wait_until(lambda: count(tmp_path, "waits.*") == RANKS - 1, "all but one wait")
    head, *others = four_hosts.machines
    if victims == "coordinator":
        killed = [(head, "agent")]
    elif victims == "another":
        killed = [(others[0], "agent")]
    elif victims == "all":
        killed = [(machine, "agent") for machine in four_hosts.machines]
    else:
        killed = [(head, "head")]
    for machine, program in killed:
        machine.kill_hard(program)
    if victims != "head":
        for machine, _ in killed:
            machine.well("up")
    else:
        # The barrier opens, and the job ends, while there is no head.
        (tmp_path / "go").touch()
        wait_until(lambda: count(tmp_path, "waits.*") == RANKS, "the last comes")
        head.well("up")
    (tmp_path / "go").touch()
    assert four_hosts.head.wait_for(job, "succeeded")["restarts"] == 0


STALE = """
    import os, pathlib, sys, time, tutti
    rank, life = int(os.environ["RANK"]), os.environ["TUTTI_EPOCH"]
    exchange = tutti.exchange
    if not os.path.exists("second"):
        exchange.put(f"old/{rank}", b"old")
        pathlib.Path(f"put.{rank}").touch()
        try:
            exchange.barrier("never") if rank else time.sleep(1000)
        except tutti.exchange.EpochOver as error:
            # Whole, or not at all: this process is being ended.
            pathlib.Path(f"telling.{rank}").write_text(str(error))
            os.rename(f"telling.{rank}", f"over.{rank}")
        time.sleep(1000)
    exchange.put(f"new/{rank}", life.encode())
    assert exchange.get(f"new/{(rank + 1) % 4}") == life.encode()
    try:
        exchange.get(f"old/{rank}", timeout=0.5)
    except TimeoutError as error:
        say(error)
    exchange.barrier("never")
"""


def test_what_was_exchanged_before_a_restart_is_gone(four_hosts: Cluster, tmp_path: Path) -> None:
    path = job_file(
        tmp_path, STALE, count=4, per_host=1, strategy='"one_for_all"', restarts="{delay = '0s'}"
    )
    job = submit(four_hosts.head, path)
    wait_until(lambda: count(tmp_path, "put.*") == 4, "all have put")
    (tmp_path / "second").touch()
    first = next(process for process in four_hosts.head.json("ps") if process["rank"] == 0)
    os.kill(first["pid"], signal.SIGKILL)
    assert four_hosts.head.wait_for(job, "succeeded")["restarts"] == 1
    texts = said(tmp_path)
    assert sorted(texts) == [0, 1, 2, 3]
    for rank, lines in texts.items():
        assert lines == [f"nobody has put 'old/{rank}' in epoch 1.2 within 0.5 s"]
    for path in tmp_path.glob("over.*"):
        assert "epoch 1.1 is over" in path.read_text()


LATE = """
    import os, time, tutti
    rank = int(os.environ["RANK"])
    if rank in (2, 3, 5):
        time.sleep(1000)
    try:
        tutti.exchange.barrier("all here", timeout=1)
    except TimeoutError as error:
        say(error)
        time.sleep(1000)
"""


def test_a_timeout_names_who_is_missing(four_hosts: Cluster, tmp_path: Path) -> None:
    job = submit(four_hosts.head, job_file(tmp_path, LATE, count=8))
    wanted = "barrier 'all here' did not open within 1 s; missing: ranks 2-3,5 of 8"
    told = {rank: [wanted] for rank in (0, 1, 4, 6, 7)}
    wait_until(lambda: said(tmp_path) == told, "all are told of the three")
    four_hosts.head.well("kill", str(job), "--grace", "0")


LIMITS = """
    import os, tutti
    exchange = tutti.exchange
    def told(call, *words):
        try:
            call(*words)
        except tutti.Error as error:
            say(error)
    told(exchange.put, "k" * 257, b"")
    told(exchange.put, "key", bytes(65537))
    told(exchange.barrier, "")
    rank = int(os.environ["RANK"])
    if rank == 0:
        exchange.put("mine", b"0")
    exchange.barrier("put")
    if rank == 1:
        told(exchange.put, "mine", b"1")
"""


def test_limits_and_owners_are_told(four_hosts: Cluster, tmp_path: Path) -> None:
    job = submit(four_hosts.head, job_file(tmp_path, LIMITS, count=2))
    four_hosts.head.wait_for(job, "succeeded")
    assert said(tmp_path)[1] == [
        "a name or key has 1 to 256 bytes, not 257",
        "a value has at most 65536 bytes, not 65537; put larger things in files",
        "a name or key has 1 to 256 bytes, not 0",
        "'mine' was put by rank 0 (process 0 of the job); only that one may put it again",
    ]
