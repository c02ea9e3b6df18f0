"""Several machines in one cluster: each is a TUTTI_HOME of its own."""

import re
import shutil
import time

from cluster_tools import Cluster
from run_tools import wait_until


def host_of(cluster: Cluster, name: str) -> dict:
    hosts = cluster.head.json("status")["hosts"]
    return next(host for host in hosts if host["name"] == name)


def alive(cluster: Cluster, name: str) -> bool:
    return host_of(cluster, name)["alive"]


def test_a_machine_that_joined_runs_ranks_and_may_run_jobs(cluster: Cluster) -> None:
    two = cluster.join("two", 8)
    hosts = cluster.head.json("status")["hosts"]
    assert [(host["name"], host["alive"]) for host in hosts] == [("one", True), ("two", True)]
    for machine in (cluster.head, two):
        out = machine.well("run", "-n", "12", "--", "sh", "-c", "echo $RANK $NODE_RANK")
        lines = sorted(int(line.split()[1]) for line in out.splitlines())
        assert lines == list(range(12))
        assert {line.split()[2] for line in out.splitlines()} == {"0", "1"}


def test_a_rank_that_fails_elsewhere_is_named(cluster: Cluster) -> None:
    cluster.join("two", 8)
    script = "[ $RANK = 11 ] && { echo far away >&2; exit 9; }; sleep 1000"
    done = cluster.head("run", "-n", "12", "--", "sh", "-c", script)
    assert done.returncode == 9
    assert "tutti: rank 11 failed first: exit code 9" in done.stderr
    assert "| far away" in done.stderr
    assert "ended because of it: ranks 0-10 (SIGTERM)" in done.stderr


def test_a_machine_that_leaves_is_lost_and_comes_back_with_up(cluster: Cluster) -> None:
    two = cluster.join("two", 1)
    two.well("down")
    wait_until(lambda: not alive(cluster, "two"), "two is lost")
    two.well("up")
    assert alive(cluster, "two")


def test_an_agent_that_is_away_as_it_said_costs_no_process(cluster: Cluster) -> None:
    two = cluster.join("two", 8)
    head = cluster.head
    job = head.submit("sleep 1000", "-n", "12")
    head.wait_for(job, "running")

    def pids() -> list[int]:
        return sorted(process["pid"] for process in head.json("ps", str(job)))

    wait_until(lambda: len(pids()) == 12, "all ranks are told")
    before = pids()
    two.well("down", "--keep-jobs")
    wait_until(lambda: host_of(cluster, "two")["away"], "two is away")
    assert not alive(cluster, "two")
    assert "its agent said that it comes back" in head.well("status")
    # Far longer than the dead are waited for.
    time.sleep(4)
    assert head.job(job)["state"] == "running"
    two.well("up")
    assert alive(cluster, "two")
    assert not host_of(cluster, "two")["away"]
    wait_until(lambda: len(pids()) == 12, "all ranks are told again")
    assert pids() == before
    assert head.job(job)["restarts"] == 0
    head.well("kill", str(job))


def test_a_token_is_good_once(cluster: Cluster) -> None:
    address, token = cluster.token()
    cluster.add().well("join", address, "--token", token, "--name", "two")
    third = cluster.add()
    done = third("join", address, "--token", token, "--name", "three")
    assert done.returncode == 1
    assert "the head does not know this token: it was used" in done.stderr
    assert not (third.home / "machine.json").exists()


def test_what_is_no_token_is_refused(cluster: Cluster) -> None:
    address, token = cluster.token()
    for wrong in ("tutti-abc", token[:-1], "x" + token):
        done = cluster.add()("join", address, "--token", wrong, "--name", "two")
        assert done.returncode == 2
        assert "this is no token, or not all of it" in done.stderr
    letter = "b" if token[60] == "a" else "a"
    done = cluster.add()("join", address, "--token", token[:60] + letter + token[61:])
    assert done.returncode == 1
    assert "the head does not know this token" in done.stderr


def test_a_token_of_another_cluster_does_not_take_this_head_for_its_own(
    cluster: Cluster,
) -> None:
    other = cluster.add()
    other.well("up", "--name", "other")
    address, _ = cluster.token()
    token = other.json("token")["token"]
    done = cluster.add()("join", address, "--token", token, "--name", "two")
    assert done.returncode == 1
    assert "the token is of another cluster, or the address is" in done.stderr


def test_certificates_of_another_cluster_are_refused(cluster: Cluster) -> None:
    two = cluster.join("two", 1)
    other = cluster.add()
    other.well("up", "--name", "two")
    two.well("down")
    for name in ("agent-two.pem", "user-root.pem"):
        shutil.copy(other.home / "cluster" / name, two.home / "cluster" / name)
    done = two("jobs")
    assert done.returncode == 1
    assert re.search("the other side is the head of cluster", done.stderr)
    assert two("up").returncode == 1
    wait_until(lambda: not alive(cluster, "two"), "two is lost")


def test_a_machine_is_in_one_cluster(cluster: Cluster) -> None:
    address, token = cluster.token()
    done = cluster.head("join", address, "--token", token)
    assert done.returncode == 1
    assert "is in cluster" in done.stderr
