"""How the processes of a job are doing: services that are asked, workers that make progress."""

import json
import socket
import sys
from pathlib import Path

import pytest
from cluster_tools import Machine
from run_tools import ROOT, wait_until

PYTHON = sys.executable

# A service that answers over HTTP while {folder}/well is there. It notes each of its lives.
SERVICE = """
import http.server, os, pathlib, sys
folder = pathlib.Path(sys.argv[2])
with (folder / "lives").open("a") as lives:
    print(os.getpid(), file=lives)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        well = (folder / "well").exists() and self.path == "/health"
        self.send_response(200 if well else 503)
        self.end_headers()
        self.wfile.write(b"x" * 100_000)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""

# A service that listens while {folder}/well is there.
LISTENER = """
import os, pathlib, socket, sys, time
folder = pathlib.Path(sys.argv[2])
with (folder / "lives").open("a") as lives:
    print(os.getpid(), file=lives)
while True:
    while not (folder / "well").exists():
        time.sleep(0.02)
    with socket.create_server(("", int(sys.argv[1]))) as server:
        server.settimeout(0.02)
        while (folder / "well").exists():
            try:
                server.accept()[0].close()
            except TimeoutError:
                pass
"""

SLEEPER = "echo $$ >> {folder}/lives; exec sleep 1000"


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


class Served:
    """A service, and a gang that needs it."""

    def __init__(self, machine: Machine, folder: Path, kind: str, start: str) -> None:
        self.machine = machine
        self.folder = folder
        self.port = free_port()
        self.kind = kind
        program = folder / "service.py"
        program.write_text(SERVICE if kind == "http" else LISTENER)
        ask = {
            "tcp": f"port = {self.port}",
            "http": f'port = {self.port}, path = "/health"',
            "command": f'command = "test -e {folder}/well"',
        }[kind]
        command = [PYTHON, str(program), str(self.port), str(folder)]
        if kind == "command":
            command = ["sh", "-c", SLEEPER.format(folder=folder)]
        file = folder / "job.toml"
        file.write_text(f"""
            name = "served"
            [service.data]
            command = {json.dumps(command)}
            restarts = {{ delay = "0s" }}
            health = {{ {ask}, every = "50ms", timeout = "10s", failures = 3, start = "{start}" }}
            [gang.worker]
            needs = ["data"]
            command = "touch {folder}/begun; sleep 1000"
        """)
        self.job = int(machine.well("submit", file))

    def lives(self) -> int:
        lives = self.folder / "lives"
        return len(lives.read_text().splitlines()) if lives.exists() else 0

    def health(self) -> str:
        services = [p for p in self.machine.json("ps") if p["role"] == "data"]
        return services[0]["health"] if services else ""

    def be_well(self, well: bool) -> None:
        if well:
            (self.folder / "well").touch()
        else:
            (self.folder / "well").unlink()

    def begun(self) -> bool:
        return (self.folder / "begun").exists()


@pytest.mark.parametrize("kind", ["tcp", "http", "command"])
def test_what_needs_a_service_starts_when_it_is_well(
    machine: Machine, tmp_path: Path, kind: str
) -> None:
    served = Served(machine, tmp_path, kind, start="1h")
    wait_until(lambda: served.health().startswith("not well yet: "), "it was looked at")
    wait_until(lambda: served.lives() == 1, "it has started")
    assert not served.begun()
    served.be_well(True)
    wait_until(served.begun, "the worker has begun")
    wait_until(lambda: served.health() == "well", "it is well")
    machine.wait_for(served.job, "running")
    assert served.lives() == 1
    assert "running, well" in machine.well("ps")
    machine.well("kill", str(served.job))


@pytest.mark.parametrize("kind", ["tcp", "http", "command"])
def test_a_service_that_falls_ill_is_started_again_as_a_hang(
    machine: Machine, tmp_path: Path, kind: str
) -> None:
    served = Served(machine, tmp_path, kind, start="1h")
    served.be_well(True)
    wait_until(served.begun, "the worker has begun")
    served.be_well(False)
    wait_until(lambda: served.lives() == 2, "it was started again")
    job = machine.job(served.job)
    assert job["culprit"]["error"] == "hang"
    assert job["culprit"]["message"].startswith("not well 3 times in a row: ")
    served.be_well(True)
    machine.wait_for(served.job, "running")
    wait_until(lambda: served.health() == "well", "it is well again")
    machine.well("kill", str(served.job))


def test_a_service_that_is_never_well_fails_its_job_when_no_restart_is_left(
    machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_text("""
        name = "never"
        [service.data]
        command = "exec sleep 1000"
        restarts = { hang = 1, delay = "0s" }
        health = { command = "exit 3", every = "20ms", failures = 2, start = "0s" }
        [gang.worker]
        needs = ["data"]
        command = "true"
    """)
    done = machine("run", file)
    assert done.returncode != 0
    assert "hang: not well 2 times in a row: its check ended with exit code 3" in done.stderr
    assert machine.job(1)["restarts"] == 1


def test_a_check_that_takes_too_long_is_killed_with_what_it_started(
    machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f"""
        name = "slow"
        [service.data]
        command = "exec sleep 1000"
        [service.data.health]
        command = "sleep 1000 & echo $! $$ >> {tmp_path}/checks; wait"
        every = "20ms"
        timeout = "100ms"
        start = "1h"
        [gang.worker]
        command = "sleep 1000"
    """)
    job = int(machine.well("submit", file))
    checks = tmp_path / "checks"

    def several() -> bool:
        return checks.exists() and len(checks.read_text().splitlines()) >= 3

    wait_until(several, "it was looked at again and again")
    health = {p["role"]: p["health"] for p in machine.json("ps")}
    assert health["data"] == "not well yet: its check took longer than 100 ms"
    first = [int(pid) for pid in checks.read_text().splitlines()[0].split()]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in first), "it was killed")
    machine.well("kill", str(job))


def test_a_reply_that_never_ends_or_is_not_http_is_not_well(
    machine: Machine, tmp_path: Path
) -> None:
    port = free_port()
    program = tmp_path / "service.py"
    program.write_text("""
import itertools, socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    for _ in itertools.count():
        stream, _ = server.accept()
        try:
            while True:
                stream.sendall(b"z" * 1000)
        except OSError:
            stream.close()
""")
    file = tmp_path / "job.toml"
    file.write_text(f"""
        name = "endless"
        [service.data]
        command = {json.dumps([PYTHON, str(program), str(port)])}
        health = {{ port = {port}, path = "/", every = "20ms", start = "1h", timeout = "10s" }}
        [gang.worker]
        command = "sleep 1000"
    """)
    job = int(machine.well("submit", file))

    def health() -> str:
        return next((p["health"] for p in machine.json("ps") if p["role"] == "data"), "")

    wait_until(lambda: "zzz" in health(), "it has answered")
    assert health() == f'not well yet: it answered "{"z" * 60}", which is not HTTP'
    machine.well("kill", str(job))


def test_a_service_is_still_watched_after_its_agent_was_started_again(
    machine: Machine, tmp_path: Path
) -> None:
    served = Served(machine, tmp_path, "command", start="1h")
    served.be_well(True)
    wait_until(served.begun, "the worker has begun")
    machine.kill_hard("agent")
    machine.well("up")
    wait_until(lambda: served.health() == "well", "it is looked at")
    assert served.lives() == 1
    served.be_well(False)
    wait_until(lambda: served.lives() == 2, "it was started again")
    machine.well("kill", str(served.job))


# Progress -----------------------------------------------------------------------------------------

# Its first life stops after three steps, its second ends well.
WORKER = """
import pathlib, sys, time, tutti
page = tutti.control.page()
life = pathlib.Path(sys.argv[1])
first = not life.exists()
life.touch()
for step in range(1, 4):
    page.step = step
    page.progress()
    time.sleep(0.1)
while first:
    time.sleep(1)
"""

# One that is slow, and gets on.
SLOW = """
import time, tutti
page = tutti.control.page()
for step in range(8):
    page.step = step
    time.sleep(1)
"""


def progress_job(folder: Path, script: str, restarts: int) -> Path:
    program = folder / "worker.py"
    program.write_text(script)
    file = folder / "job.toml"
    file.write_text(f"""
        name = "progress"
        environment = {{ PYTHONPATH = "{ROOT}/python" }}
        [gang.worker]
        command = ["{PYTHON}", "{program}", "{folder}/life"]
        hang_after = "3s"
        restarts = {{ hang = {restarts}, delay = "0s" }}
    """)
    return file


def test_a_worker_that_makes_no_progress_is_started_again(machine: Machine, tmp_path: Path) -> None:
    machine.well("run", progress_job(tmp_path, WORKER, restarts=1))
    job = machine.job(1)
    assert (job["state"], job["restarts"]) == ("succeeded", 1)
    assert job["culprit"]["error"] == "hang"
    assert job["culprit"]["message"] == "made no progress for 3.00 s"


def test_a_hang_without_a_restart_left_is_the_verdict(machine: Machine, tmp_path: Path) -> None:
    done = machine("run", progress_job(tmp_path, WORKER, restarts=0))
    assert done.returncode != 0
    assert "rank 0: hang: made no progress for 3.00 s" in done.stderr
    assert machine.job(1)["why"].startswith("hang: made no progress for 3.00 s")


def test_a_worker_that_never_began_is_a_hang_too(machine: Machine, tmp_path: Path) -> None:
    done = machine("run", progress_job(tmp_path, "import time; time.sleep(1000)", restarts=0))
    assert "hang: made no progress" in done.stderr


def test_a_worker_that_is_slow_and_gets_on_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    machine.well("run", progress_job(tmp_path, SLOW, restarts=0))
    assert machine.job(1)["restarts"] == 0


def test_a_hang_is_found_by_an_agent_that_was_started_again(
    machine: Machine, tmp_path: Path
) -> None:
    file = progress_job(tmp_path, WORKER, restarts=1)
    job = int(machine.well("submit", file))
    wait_until(lambda: (tmp_path / "life").exists(), "it runs")
    machine.kill_hard("agent")
    machine.well("up")
    assert machine.wait_for(job, "succeeded")["restarts"] == 1
