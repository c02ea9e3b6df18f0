"""Cores that are saturated many times over: everybody is late, and nobody is taken for dead.

Here for some seconds; `make soak` sets TUTTI_SATURATE_S for ten minutes.
"""

import os
import time

from cluster_tools import Cluster
from run_tools import wait_until

SECONDS = float(os.environ.get("TUTTI_SATURATE_S", "8"))
BURNERS_PER_CORE = 8
BURN = "while :; do :; done"


def test_saturated_cores_cause_no_false_death(cluster: Cluster) -> None:
    burners = BURNERS_PER_CORE * len(os.sched_getaffinity(0))
    for name in ("two", "three", "four"):
        cluster.join(name, burners)
    job = cluster.head.submit(BURN, "-n", str(burners))
    cluster.head.wait_for(job, "running")
    before = {process["pid"] for process in cluster.head.json("ps", str(job))}
    end = time.monotonic() + SECONDS
    looks = 0
    while time.monotonic() < end:
        hosts = cluster.head.json("status")["hosts"]
        assert all(host["alive"] for host in hosts), hosts
        looks += 1
        time.sleep(0.5)
    assert looks > 1
    assert {process["pid"] for process in cluster.head.json("ps", str(job))} == before
    assert cluster.head.job(job)["restarts"] == 0
    for machine in cluster.machines:
        assert "lost a node" not in machine.logs()
        assert "lost hosts" not in machine.logs()
    cluster.head.well("kill", str(job))
    wait_until(lambda: cluster.head.job(job)["state"] == "killed", "it is killed")
