"""How soon a rank is back: a warm spare against a cold start with the same imports.

Both sides are one job each on a cluster of this machine: one rank that imports the same modules,
the one with a spare and the other without. A round kills the rank of each and takes the time from
the kill until the user's function runs again, by its own clock. The bench `cluster` runs this.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import ROOT, Case, build, compare

PATIENCE_S = 60
# Of the standard library, so that they are the same everywhere; about as slow as numpy.
MODULES = [
    *("asyncio", "ctypes.util", "decimal", "difflib", "doctest", "email.message"),
    *("html.parser", "http.server", "imaplib", "logging.config", "mailbox"),
    *("multiprocessing.managers", "optparse", "pydoc", "sqlite3", "ssl", "tarfile"),
    *("unittest", "urllib.request", "xml.dom.minidom", "xmlrpc.server", "zipfile"),
]

WORKER = f"""
import {", ".join(MODULES)}
import os, time
def user_function():
    now = time.time()
    with open("began.new", "w") as file:
        print(os.getpid(), now, file=file)
    os.rename("began.new", "began")
    time.sleep(100000)
user_function()
"""


class Gang:
    """A job of one rank; its folder says when its function began, and in which process."""

    def __init__(self, cluster: "Cluster", name: str, spares: int) -> None:
        self.cluster = cluster
        self.folder = cluster.home / name
        self.folder.mkdir()
        self.spares = spares
        (self.folder / "work.py").write_text(WORKER)
        lines = [
            f"name = {json.dumps(name)}",
            f"folder = {json.dumps(str(self.folder))}",
            "[gang.worker]",
            f"command = {json.dumps([sys.executable, 'work.py'])}",
            'restarts = { killed = "always", delay = "0s" }',
        ]
        if spares:
            lines += [f"spares = {spares}", f"preload = {json.dumps(MODULES)}"]
        path = self.folder / "job.toml"
        path.write_text("\n".join(lines) + "\n")
        self.job = int(cluster("submit", str(path)))
        self.began()

    def began(self, after: int = 0) -> tuple[int, float]:
        """Process and time of the last call of the function, in another process than `after`."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                pid, at = (self.folder / "began").read_text().split()
                if int(pid) != after:
                    return int(pid), float(at)
            except OSError:
                pass
            time.sleep(0.002)
        raise RuntimeError(f"the rank of {self.folder.name} does not run")

    def wait_for_spares(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            shown = json.loads(self.cluster("ps", str(self.job), "--json"))
            ready = [one for one in shown if one["spare"] and one["state"] == "ready"]
            if len(ready) == self.spares:
                return
            time.sleep(0.05)
        raise RuntimeError("the spares do not get ready")

    def milliseconds(self) -> float:
        self.wait_for_spares()
        pid, _ = self.began()
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        return (self.began(after=pid)[1] - killed_at) * 1e3


class Cluster:
    """One machine, with a home of its own."""

    def __init__(self) -> None:
        self.tutti = build("tutti", "_core") / "tutti"
        self.home = Path(tempfile.mkdtemp(prefix="tt", dir="/tmp"))
        paths = {"TUTTI_HOME": str(self.home / "home"), "PYTHONPATH": str(ROOT / "python")}
        self.environment = os.environ | paths
        self("up", "--slots", "4")

    def __call__(self, *words: str) -> str:
        return subprocess.run(
            [self.tutti, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout

    def end(self) -> None:
        self("down")
        shutil.rmtree(self.home)


def cases(quick: bool) -> Iterator[Case]:
    cluster = Cluster()
    try:
        warm = Gang(cluster, "warm", spares=1)
        cold = Gang(cluster, "cold", spares=0)
        yield compare(
            case="a killed rank's function runs again, with a warm spare",
            unit="ms",
            higher_is_better=False,
            rounds=5 if quick else 15,
            ours=warm.milliseconds,
            peer="tutti, cold start",
            theirs=cold.milliseconds,
            note=f"{len(MODULES)} modules of the standard library imported",
        )
    finally:
        cluster.end()


if __name__ == "__main__":
    for case in cases(quick=True):
        print(json.dumps(case.as_json("cluster_spares")))
