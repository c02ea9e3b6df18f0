"""The fabric over several hosts by UCX: the same collectives and bits as by TCP."""

import sys
import uuid
from collections.abc import Iterator

import pytest
from cluster_tools import Cluster
from fabric_tools import ENVIRONMENT, EVERY_COLLECTIVE, PRELUDE

UCX_PRELUDE = PRELUDE.replace("join(60)", 'join(60, transport="ucx")')
DIGEST = """
random = np.random.default_rng(rank)
x = fabric.adopt(random.standard_normal(300_001).astype(np.float32))
world.all_reduce(x, op="mean")
y = random.standard_normal(5000).astype(np.float16)
world.all_reduce(y)
print(f"{tutti.hash64(x):x} {tutti.hash64(y):x}")
"""


@pytest.fixture
def hosts() -> Iterator[Cluster]:
    """Two hosts with two slots each."""
    cluster = Cluster(uuid.uuid4().hex)
    cluster.head.well("up", "--name", "one", "--slots", "2")
    cluster.join("two", 2)
    for machine in cluster.machines:
        machine.environment |= {key: ENVIRONMENT[key] for key in ("PYTHONPATH", "OMP_NUM_THREADS")}
        machine.environment |= {"UCX_TLS": "tcp"}
    yield cluster
    cluster.end()


def run(cluster: Cluster, script: str) -> list[str]:
    command = [sys.executable, "-c", script]
    return sorted(cluster.head.well("run", "-n", "4", "--", *command).splitlines())


def test_ucx_moves_every_collective_with_the_bits_of_tcp(hosts: Cluster) -> None:
    assert run(hosts, UCX_PRELUDE + EVERY_COLLECTIVE) == [f"[{rank}] well" for rank in range(4)]
    over_ucx = run(hosts, UCX_PRELUDE + DIGEST)
    assert over_ucx == run(hosts, PRELUDE + DIGEST)
    assert len({line.split("]")[1] for line in over_ucx}) == 1
    # Chosen by the environment too; it is the same call that fails where there is no such thing.
    for machine in hosts.machines:
        machine.environment |= {"TUTTI_FABRIC_TRANSPORT": "pigeons"}
    done = hosts.head("run", "-n", "4", "--", sys.executable, "-c", PRELUDE)
    assert done.returncode == 1
    assert "there is no transport 'pigeons'; use tcp or ucx" in done.stdout + done.stderr


def test_ranks_that_choose_different_transports_are_told(hosts: Cluster) -> None:
    prelude = PRELUDE.replace("join(60)", 'join(60, transport="ucx" if rank == 3 else "tcp")')
    script = "rank = int(__import__('os').environ['RANK'])\n" + prelude
    script += "world.all_reduce(np.ones(100_000, np.float32))\n"
    done = hosts.head("run", "-n", "4", "--", sys.executable, "-c", script)
    assert done.returncode != 0
    assert "choose one for all ranks" in done.stdout + done.stderr
