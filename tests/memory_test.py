"""Ranks that the kernel kills for memory: known by what the kernel counts, not by a guess."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster
from run_tools import PATIENCE_S, TUTTI, wait_until

LIMIT_BYTES = 100 << 20


def gone(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False  # the kernel is busy with its last member
    return True


@pytest.fixture
def small_memory() -> Iterator[list[str]]:
    """Words before a command that put it into a cgroup with little memory, of either version."""
    groups = Path("/sys/fs/cgroup")
    for parent, limit in [(groups / "memory", "memory.limit_in_bytes"), (groups, "memory.max")]:
        group = parent / f"tutti-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(LIMIT_BYTES))
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
            wait_until(lambda group=group: gone(group), "the cgroup is empty")
            return
        group.rmdir()
    pytest.skip("no memory controller can be used here")


HUNGRY = [sys.executable, "-c", "hoard = bytearray(1 << 30)"]
HUNGRY_CHILD = ["sh", "-c", f"{sys.executable} -c 'hoard = bytearray(1 << 30)' || exit 3"]
KILLED = ["sh", "-c", "kill -9 $$"]


@pytest.mark.parametrize(
    ("command", "how", "who"),
    [
        (HUNGRY, "killed by SIGKILL (killed; out of memory)", "the kernel, which was short"),
        (HUNGRY_CHILD, "exit code 3; out of memory", "the kernel, which was short"),
        (KILLED, "killed by SIGKILL (killed)", "not tutti; a person, or the kernel"),
    ],
    ids=["rank", "child", "person"],
)
def test_a_rank_that_ran_out_of_memory_is_told_from_one_that_was_killed(
    small_memory: list[str], command: list[str], how: str, who: str
) -> None:
    done = subprocess.run(
        [*small_memory, TUTTI, "run", "--", *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert f"rank 0 failed first: {how}, after" in done.stderr
    assert who in done.stderr


def test_a_job_is_started_again_as_often_as_it_may_run_out_of_memory(
    small_memory: list[str], empty_cluster: Cluster, tmp_path: Path
) -> None:
    machine = empty_cluster.head
    machine.command = [*small_memory, str(TUTTI)]
    machine.well("up", "--name", "one", "--slots", "8")
    file = tmp_path / "job.toml"
    file.write_text(f"""
        name = "hungry"
        [gang.worker]
        command = ["{sys.executable}", "-c", "hoard = bytearray(1 << 30)"]
        restarts = {{ out_of_memory = 2, killed = 0, delay = "0s" }}
    """)
    done = machine("run", file)
    assert "out of memory" in done.stderr
    job = machine.job(1)
    assert (job["state"], job["restarts"]) == ("failed", 2)
    assert job["culprit"]["error"] == "out of memory"
