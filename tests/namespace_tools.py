"""Machines in network namespaces of this one: each has a wire of its own, which can be cut."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from cluster_tools import Cluster, Machine
from run_tools import TUTTI

SUBNET = "10.213.77"


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Wires:
    """A switch, and a wire from it to each namespace."""

    def __init__(self) -> None:
        self.prefix = f"tt{os.getpid() % 10000}"
        self.switch = f"{self.prefix}sw"
        self.names: list[str] = []
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")

    def add(self) -> tuple[str, str]:
        """A namespace, and its address."""
        number = len(self.names) + 1
        name = f"{self.prefix}h{number}"
        address = f"{SUBNET}.{number}"
        ip("netns", "add", name)
        self.names.append(name)
        ip("-n", self.switch, "link", "add", name, "type", "veth", "peer", "eth0", "netns", name)
        ip("-n", self.switch, "link", "set", name, "master", "bridge", "up")
        ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        return name, address

    def cut(self, name: str) -> None:
        ip("-n", self.switch, "link", "set", name, "down")

    def mend(self, name: str) -> None:
        ip("-n", self.switch, "link", "set", name, "up")

    def end(self) -> None:
        for name in [*self.names, self.switch]:
            for pid in pids_in(name):
                os.kill(pid, signal.SIGKILL)
            ip("netns", "delete", name)


def pids_in(name: str) -> list[int]:
    return [int(pid) for pid in ip("netns", "pids", name).split()]


class WiredMachine(Machine):
    """A machine whose commands run in a namespace."""

    def __init__(self, mark: str, wires: Wires) -> None:
        super().__init__(mark)
        self.wires = wires
        self.namespace, self.address = wires.add()
        self.command = ["ip", "netns", "exec", self.namespace, str(TUTTI)]

    def die(self) -> None:
        """As if somebody had pulled its plug."""
        self.wires.cut(self.namespace)
        for pid in pids_in(self.namespace):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def commands(self) -> list[str]:
        found = []
        for pid in pids_in(self.namespace):
            with contextlib.suppress(OSError):  # it has ended
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
        return found


class WiredCluster(Cluster):
    """A head and agents, each in a namespace; `one` is the head's machine."""

    def __init__(self, mark: str) -> None:
        self.wires = Wires()
        super().__init__(mark)
        self.head.well("up", "--name", "one", "--slots", "1", "--listen", f"{self.head.address}:0")

    def add(self) -> WiredMachine:
        self.machines.append(WiredMachine(self.mark, self.wires))
        return self.machines[-1]

    def join(self, name: str, slots: int) -> WiredMachine:
        machine = self.add()
        address, token = self.token()
        machine.well(
            *("join", address, "--token", token, "--name", name),
            *("--slots", str(slots), "--listen", f"{machine.address}:0"),
        )
        return machine

    def end(self) -> None:
        try:
            super().end()
        finally:
            self.wires.end()
