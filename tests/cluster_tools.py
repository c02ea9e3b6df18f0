"""What the tests of clusters share: a home of its own for each machine, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from run_tools import MARK, PATIENCE_S, TUTTI, marked, wait_until


class Machine:
    """A machine of a cluster: its own TUTTI_HOME, in a short path since sockets live in it."""

    def __init__(self, mark: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tt", dir="/tmp"))
        self.command = [str(TUTTI)]
        self.environment = os.environ | {"TUTTI_HOME": str(self.home), MARK: mark, "USER": "ada"}

    def become(self, user: int, folder: Path) -> None:
        """From now on everything here is done as that user, who gets a copy of what it needs."""
        for path in [folder, *folder.parents[:2]]:
            path.chmod(0o755)
        folder.chmod(0o777)
        os.chown(self.home, user, user)
        program = shutil.copy(TUTTI, folder / "tutti")
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        self.command = [*drop, str(program)]

    def __call__(self, *words: str | Path, **more) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            **more,
        )

    def well(self, *words: str | Path, **more) -> str:
        done = self(*words, **more)
        assert done.returncode == 0, done.stderr + self.logs()
        return done.stdout

    def json(self, *words: str):
        return json.loads(self.well(*words, "--json"))

    def start(self, *words: str | Path, **more) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *words],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def submit(self, script: str, *options: str) -> int:
        return int(self.well("submit", *options, "--", "sh", "-c", script))

    def job(self, number: int) -> dict:
        return next(job for job in self.json("jobs", "--all") if job["job"] == number)

    def wait_for(self, number: int, state: str) -> dict:
        wait_until(lambda: self.job(number)["state"] == state, f"job {number} is {state}")
        return self.job(number)

    def pid(self, program: str) -> int:
        return int((self.home / program / "pid").read_text().split()[0])

    def kill_hard(self, *programs: str) -> None:
        for program in programs:
            os.kill(self.pid(program), signal.SIGKILL)

    def logs(self) -> str:
        logs = sorted(self.home.glob("log/*"))
        return "".join(f"\n--- {log.name}\n{log.read_text()}" for log in logs)


class Cluster:
    """Machines that share a mark; the first is made at once, and is not up yet."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.machines: list[Machine] = []
        self.head = self.add()

    def add(self) -> Machine:
        self.machines.append(Machine(self.mark))
        return self.machines[-1]

    def token(self) -> tuple[str, str]:
        reply = self.head.json("token")
        return reply["head"], reply["token"]

    def join(self, name: str, slots: int) -> Machine:
        machine = self.add()
        address, token = self.token()
        machine.well("join", address, "--token", token, "--name", name, "--slots", str(slots))
        return machine

    def end(self) -> None:
        ended = [machine("down") for machine in reversed(self.machines)]
        left = marked(self.mark)
        for line in left:
            os.kill(int(line.split()[0]), signal.SIGKILL)
        logs = "".join(machine.logs() for machine in self.machines)
        for machine in self.machines:
            shutil.rmtree(machine.home)
        assert not left, logs
        assert all(done.returncode == 0 for done in ended), [done.stderr for done in ended]
