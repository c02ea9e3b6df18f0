"""What a job prints comes whole and once, whoever is started anew or moved meanwhile."""

import json
import threading
from pathlib import Path

import pytest
import tutti
from cluster_tools import Cluster, Machine
from run_tools import wait_until

PHASES = ("up", "mid", "end")


def script(folder: Path) -> str:
    """Says its phases, each when it may; the last of a phase is seen in the folder."""
    lines = [f"echo up-$RANK; echo > {folder}/up.$RANK"]
    for phase in PHASES[1:]:
        lines.append(f"until [ -e {folder}/{phase} ]; do sleep 0.02; done")
        lines.append(f"echo {phase}-$RANK; echo > {folder}/{phase}.$RANK")
    return "\n".join(lines)


def all_said(folder: Path, phase: str, ranks: int) -> None:
    wait_until(lambda: len(list(folder.glob(f"{phase}.*"))) == ranks, f"all said {phase}")


def lines_of(output: str, ranks: int) -> list[list[str]]:
    told = [line.split("] ", 1) for line in output.splitlines()]
    return [[text for who, text in told if who.strip("[ ") == str(rank)] for rank in range(ranks)]


def expected(ranks: int) -> list[list[str]]:
    return [[f"{phase}-{rank}" for phase in PHASES] for rank in range(ranks)]


@pytest.fixture
def pair(empty_cluster: Cluster) -> tuple[Machine, Machine]:
    empty_cluster.head.well("up", "--name", "one", "--slots", "2")
    other = empty_cluster.join("two", 2)
    hosts = lambda: empty_cluster.head.json("status")["hosts"]  # noqa: E731
    wait_until(lambda: sum(host["alive"] for host in hosts()) == 2, "both hosts are there")
    return empty_cluster.head, other


@pytest.mark.parametrize("how", ["agent", "agent and head", "both agents and head"])
def test_output_of_a_host_whose_agent_is_started_anew_is_whole(
    pair: tuple[Machine, Machine], tmp_path: Path, how: str
) -> None:
    head, other = pair
    run = head.start("run", "-n", "4", "--", "sh", "-c", script(tmp_path))
    all_said(tmp_path, "up", 4)
    head.wait_for(1, "running")
    other.kill_hard("agent")
    if "head" in how:
        head.kill_hard("head")
    if "both" in how:
        head.kill_hard("agent")
    (tmp_path / "mid").touch()
    head.well("up")
    other.well("up")
    all_said(tmp_path, "mid", 4)
    wait_until(lambda: len(head.json("ps")) == 4, "its processes are found again")
    (tmp_path / "end").touch()
    output, error = run.communicate()
    assert run.returncode == 0, error + head.logs() + other.logs()
    assert lines_of(output, 4) == expected(4), error
    assert "missing" not in error


def test_python_reads_on_where_the_agent_is_started_anew(
    pair: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, other = pair
    monkeypatch.setenv("TUTTI_HOME", str(head.home))
    number = head.submit(script(tmp_path), "-n", "4")
    lines: list[tutti.cluster.Line] = []
    with tutti.Cluster() as cluster:
        reader = threading.Thread(target=lambda: lines.extend(cluster.job(number).output()))
        reader.start()
        wait_until(lambda: len(lines) == 4, "all lines of the first phase are read")
        other.kill_hard("agent")
        other.well("up")
        (tmp_path / "mid").touch()
        (tmp_path / "end").touch()
        reader.join()
    got = [[line.text for line in lines if line.rank == rank] for rank in range(4)]
    assert got == expected(4)


def test_output_that_cannot_be_had_any_more_is_told(pair: tuple[Machine, Machine]) -> None:
    head, other = pair
    run = head.start("run", "--json", "-n", "4", "--", "sh", "-c", "echo up; sleep 1000")
    assert run.stdout is not None
    said: set[int] = set()
    while len(said) < 4:
        event = json.loads(run.stdout.readline())
        if event["event"] == "output":
            said.add(event["rank"])
    other.kill_hard("agent")
    head.well("kill", "1")
    output, error = run.communicate()
    events = [json.loads(line) for line in output.splitlines()]
    missing = [event for event in events if event["event"] == "output_missing"]
    assert [(event["host"], event["ranks"]) for event in missing] == [("two", [2, 3])], error
    other.well("up")
