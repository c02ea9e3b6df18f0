"""Hosts that have left for good are forgotten, and stay so; settings that fail do not stay."""

from pathlib import Path

from cluster_tools import Cluster, Machine
from run_tools import wait_until


def names(cluster: Cluster) -> list[str]:
    return [host["name"] for host in cluster.head.json("status")["hosts"]]


def is_lost(cluster: Cluster, name: str) -> bool:
    hosts = cluster.head.json("status")["hosts"]
    return not next(host["alive"] for host in hosts if host["name"] == name)


def refusal(machine: Machine, *words: str) -> str:
    done = machine(*words)
    assert done.returncode == 1, done.stdout
    return done.stderr


# The tree looks for a host a moment longer than anything is placed on it.
def forget(machine: Machine, name: str) -> None:
    wait_until(lambda: "is connected" not in machine("forget", name).stderr, f"{name} is forgotten")
    assert f"there is no host '{name}'" in refusal(machine, "forget", name)


def test_a_host_that_left_is_forgotten_also_by_the_next_head(cluster: Cluster) -> None:
    two = cluster.join("two", 50)
    head = cluster.head
    assert "host two is connected" in refusal(head, "forget", "two")
    two.well("down", "--keep-jobs")
    wait_until(lambda: is_lost(cluster, "two"), "two is lost")
    assert "did you mean 'two'?" in refusal(head, "forget", "tow")
    forget(head, "two")
    assert names(cluster) == ["one"]
    assert "all hosts of the cluster together have" in refusal(
        head, "submit", "-n", "50", "--", "true"
    )
    head.kill_hard("head")
    head.well("up")
    assert names(cluster) == ["one"]
    # Its number is still its own, and it may come back.
    two.well("up")
    wait_until(lambda: names(cluster) == ["one", "two"], "two is known again")


def test_a_job_that_nobody_can_hold_any_more_lets_others_pass(cluster: Cluster) -> None:
    two = cluster.join("two", 50)
    head = cluster.head
    two.well("down", "--keep-jobs")
    wait_until(lambda: is_lost(cluster, "two"), "two is lost")
    large = int(head.well("submit", "-n", "50", "--", "true"))
    small = int(head.well("submit", "--", "true"))
    assert head.job(small)["state"] == "queued"
    forget(head, "two")
    head.wait_for(small, "succeeded")
    assert head.job(large)["why"].startswith("no host can hold it any more: the job takes 50 slots")
    head.wait_for(int(head.well("submit", "--", "true")), "succeeded")
    two.well("up")
    head.wait_for(large, "succeeded")


def test_a_host_with_processes_is_not_forgotten_and_not_left_out_when_it_is_away(
    cluster: Cluster, tmp_path: Path
) -> None:
    two = cluster.join("two", 50)
    head = cluster.head
    begun = tmp_path / "begun"
    begun.mkdir()
    file = tmp_path / "job.toml"
    # Only two has room for one, so its coordinator is there too: nobody else takes them for lost.
    file.write_text(
        f"""name = "busy"
[gang.worker]
command = ["sh", "-c", "touch {begun}/$RANK; sleep 1000"]
count = 5
slots = 10
"""
    )
    job = int(head.well("submit", str(file)))
    wait_until(lambda: len(list(begun.iterdir())) == 5, "all have begun")
    head.kill_hard("head")
    two.kill_hard("agent")
    head.well("up")
    away = f"two: away, or not back at the head yet; what it has of job {job} is not known"
    wait_until(lambda: away in head.well("ps"), "the head has heard of the job, but not of two")
    assert f"host two may still have something of job {job}" in refusal(head, "forget", "two")
    two.well("up")
    wait_until(lambda: "away" not in head.well("ps"), "two is back")
    head.well("kill", str(job))


def test_an_address_that_cannot_be_had_is_not_kept(cluster: Cluster) -> None:
    fresh = cluster.add()
    assert "did not start" in refusal(fresh, "up", "--listen", "192.0.2.1:7000", "--name", "x")
    assert not (fresh.home / "machine.json").exists()
    fresh.well("up", "--name", "x", "--slots", "1")
    fresh.well("down")
    before = (fresh.home / "machine.json").read_text()
    assert "did not start" in refusal(fresh, "up", "--listen", "192.0.2.1:7000")
    assert (fresh.home / "machine.json").read_text() == before
    fresh.well("up")


def test_the_programs_of_a_cluster_are_called_tutti(cluster: Cluster) -> None:
    for program in ("head", "agent"):
        folder = Path(f"/proc/{cluster.head.pid(program)}")
        assert (folder / "cmdline").read_bytes() == f"tutti\0{program}\0".encode()
        assert (folder / "comm").read_text() == "tutti\n"


def test_errors_name_the_head_once(cluster: Cluster) -> None:
    text = refusal(cluster.head, "kill", "99")
    assert text.startswith("tutti kill: there is no job 99; see")
    assert "head head" not in text
