import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from cluster_tools import Cluster, Machine
from run_tools import Marked

# What is measured beside other tests would be kept for the user's own programs.
os.environ["TUTTI_FABRIC_TUNE"] = "off"


@pytest.fixture
def gang() -> Iterator[Marked]:
    mark = Marked()
    yield mark
    left = mark.living()
    for line in left:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    assert not left


@pytest.fixture
def empty_cluster() -> Iterator[Cluster]:
    """Machines that nobody started anything on yet."""
    cluster = Cluster(uuid.uuid4().hex)
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(empty_cluster: Cluster) -> Cluster:
    """One machine, called one, with eight slots."""
    empty_cluster.head.well("up", "--name", "one", "--slots", "8")
    return empty_cluster


@pytest.fixture
def machine(cluster: Cluster) -> Machine:
    return cluster.head
