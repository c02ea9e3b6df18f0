"""The cluster from Python: submit jobs, watch them, read what they print.

    import tutti

    with tutti.Cluster() as cluster:
        job = cluster.submit(name="hello", roles=[tutti.Role("worker", ["hostname"], count=4)])
        for line in job.output():
            print(line.rank, line.text)
        job.wait(check=True)

What goes wrong is a ``tutti.Error``, in the words of the ``tutti`` command. A call waits without
the GIL, and Ctrl-C ends the wait; the job goes on.
"""

import atexit
import json
import os
import re
import signal as signals
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from tutti._core import Door
from tutti._error import Error

__all__ = ["Cluster", "Host", "Job", "Line", "Process", "Role"]

OVER = ("succeeded", "failed", "killed", "timed-out")
LONGEST_LINE = 64 << 10  # bytes; what is longer comes in pieces, as from the command
_TEXT_NAME = "job"  # of a job that is in no file: in no error that people see
_KINDS = ("gang", "service", "task", "sidecar")
_open: weakref.WeakSet["Cluster"] = weakref.WeakSet()


@dataclass(frozen=True)
class Role:
    """A role of a job: what a table of a job file says, docs/jobs.md.

    tutti.Role("worker", ["python", "train.py"], count=8, restarts={"killed": 3})
    """

    name: str
    command: Sequence[str | os.PathLike[str]] | str
    kind: Literal["gang", "service", "task", "sidecar"] = "gang"
    keys: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]] | str,
        *,
        kind: Literal["gang", "service", "task", "sidecar"] = "gang",
        **keys: Any,
    ) -> None:
        if kind not in _KINDS:
            raise ValueError(f"role {name}: kind must be one of {', '.join(_KINDS)}, not {kind!r}")
        for key, value in {"name": name, "command": command, "kind": kind, "keys": keys}.items():
            object.__setattr__(self, key, value)


class Line(NamedTuple):
    """A line that a process printed, without its end."""

    role: str
    rank: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class Process:
    """A process of a job, as it was when it was asked for."""

    job: int
    process: int  # its number, through all roles
    role: str
    rank: int
    host: str
    pid: int
    state: str
    step: int  # as the process says, see tutti.control
    epoch: int
    restarts: int  # on its host, since the agent there began
    health: str  # of one that is watched: "well", or what is wrong with it
    spare: bool  # it waits for a rank
    from_spare: bool  # it was a spare before
    cpu_seconds: float  # of the process and what it started
    memory_bytes: int


@dataclass(frozen=True)
class Host:
    """A host of the cluster."""

    node: int
    name: str
    address: str
    alive: bool
    away: bool  # its agent said that it comes back; what runs there goes on
    slots: int
    free: int
    version: str
    leftovers: list[dict[str, Any]]  # of jobs that are over: what could not be ended


class Job:
    """A job of the cluster; ``number`` is what the command calls it by."""

    def __init__(self, cluster: "Cluster", told: dict[str, Any]) -> None:
        self._cluster = cluster  # closed at exit for as long as it is known
        self._door = cluster._door
        self._told = told

    def _ask(self) -> dict[str, Any]:
        self._told = json.loads(self._door.job(self.number))
        return self._told

    @property
    def number(self) -> int:
        return self._told["job"]

    @property
    def name(self) -> str:
        return self._told["name"]

    @property
    def state(self) -> str:
        """Now: "queued", "running", "restarting", …; at the end one of ``tutti.cluster.OVER``."""
        return self._ask()["state"]

    @property
    def why(self) -> str:
        """Why it is in its state, for people; often empty."""
        return self._ask()["why"]

    @property
    def restarts(self) -> int:
        return self._ask()["restarts"]

    def wait(self, timeout: float | None = None, *, check: bool = False) -> str:
        """Wait until it is over, and give its state.

        ``timeout`` in seconds, then tutti.Error with code "deadline"; the job goes on. With
        ``check`` a job that did not succeed is a tutti.Error with its verdict, code "failed".
        """
        self._told |= json.loads(self._door.wait(self.number, timeout))
        if check and self._told["state"] != "succeeded":
            raise Error(self.verdict() or f"{self!r}", "failed")
        return self._told["state"]

    def verdict(self) -> str:
        """Waits for the end, and says who failed first and why; empty when all went well."""
        return self._door.verdict(self.number).rstrip()

    def processes(self) -> list[Process]:
        """What it runs now, on all its hosts."""
        return [Process(**told) for told in json.loads(self._door.processes(self.number))]

    def stuck(self, *, ended: bool = False) -> dict[str, Any]:
        """What it waits for: what ``tutti stuck --json`` prints, docs/fabric.md.

        Of each role its ``waits`` (a call, who has come, who is missing), ``deadlocks``, and what
        each of its ``ranks`` does. Of a job that is over, or with ``ended``, what its processes did
        when they failed or were ended.
        """
        return json.loads(self._door.stuck(self.number, ended))

    def output(self) -> Iterator[Line]:
        """What it prints, from the beginning to its end, line by line.

        Lines of one process are in order. A job that prints faster than this is read waits. What
        a host that does not answer any more may have kept to itself is told as a warning.
        """
        roles = self._ask()["roles"]
        names = [(role["name"], rank) for role in roles for rank in range(role["count"])]
        begun: dict[tuple[int, int], bytes] = {}
        output = self._door.output(self.number)
        try:
            while pieces := output.next():
                for process, stream, data in pieces:
                    *lines, rest = (begun.pop((process, stream), b"") + data).split(b"\n")
                    if rest and (not data or len(rest) > LONGEST_LINE):
                        lines.append(rest)
                    elif rest:
                        begun[process, stream] = rest
                    role, rank = names[process]
                    for line in lines:
                        kind = "stdout" if stream == 1 else "stderr"
                        yield Line(role, rank, kind, line.decode(errors="replace"))
            for (process, stream), rest in begun.items():
                kind = "stdout" if stream == 1 else "stderr"
                yield Line(*names[process], kind, rest.decode(errors="replace"))
            for text in output.missing():
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        finally:
            output.close()

    def kill(self, grace: float | None = None) -> str:
        """End it, with ``grace`` seconds from SIGTERM to SIGKILL (its own), and wait for that."""
        self._door.kill(self.number, grace)
        return self.wait()

    def signal(self, number: int | str, ranks: str = "") -> None:
        """Send a signal to its processes, or to some: ``job.signal("USR1", "worker/0,3-5")``."""
        text = str(int(number)) if isinstance(number, (int, signals.Signals)) else number
        self._door.signal(self.number, text, ranks)

    def __repr__(self) -> str:
        told = self._told
        processes = f"{told['processes']} process{'es' if told['processes'] != 1 else ''}"
        return f"<tutti.Job {told['job']} {told['name']}: {told['state']}, {processes}>"


class Cluster:
    """The cluster this machine is in, as ``tutti status`` shows it.

    Use it with ``with``, or close() it. Any thread may use it; a forked process makes its own.
    """

    def __init__(self) -> None:
        self._door = Door()
        _open.add(self)

    def submit(
        self,
        job: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        roles: Sequence[Role] = (),
        folder: str | os.PathLike[str] | None = None,
        **keys: Any,
    ) -> Job:
        """Submit a job, and return without waiting for it.

        A job is a file (``submit("train.toml")``), a dict that says what a file would, or a name
        and roles with other keys of a job: ``submit(name="try", roles=[…], timeout="2h")``.
        Processes get the environment of the caller, and start in its folder if no other is said.
        """
        if isinstance(job, (str, os.PathLike)):
            if name is not None or roles or keys:
                raise TypeError("a job file says all there is: give either it, or name and roles")
            path = Path(job)
            try:
                text = path.read_text()
            except FileNotFoundError as error:
                raise Error(f"open {path}: {error.strerror}", "not_found") from None
            number = self._door.submit(text, str(path), os.fspath(folder or ""))
        else:
            said = dict(job or {}) | keys | ({"name": name} if name is not None else {})
            try:
                number = self._door.submit(_toml(said, roles), _TEXT_NAME, os.fspath(folder or ""))
            except Error as error:
                # Lines of a text that nobody wrote say nothing.
                plain = re.sub(rf"^{_TEXT_NAME}:\d+: ", "", error.message, flags=re.MULTILINE)
                raise Error(plain, error.code) from None
        return self.job(number)

    def job(self, number: int) -> Job:
        """A job by its number."""
        return Job(self, json.loads(self._door.job(number)))

    def jobs(
        self,
        *,
        all: bool = False,
        state: str | Sequence[str] = (),
        user: str = "",
        name: str = "",
        since: float | str = "",
        limit: int | None = None,
    ) -> list[Job]:
        """The jobs there are, newest first; with ``all`` those that ended too.

        Of a ``state`` or several, of a ``user``, with a ``name`` in which * is any text and ? any
        character, submitted ``since`` so many seconds or "2h" ago, the newest ``limit`` of them. A
        state or a time finds those that ended too.
        """
        states = state if isinstance(state, str) else ",".join(state)
        ago = since if isinstance(since, str) else f"{since}s"
        found = self._door.jobs(all, states, user, name, ago, limit)
        return [Job(self, told) for told in json.loads(found)]

    def hosts(self) -> list[Host]:
        return [Host(**told) for told in self.status()["hosts"]]

    def status(self) -> dict[str, Any]:
        """What ``tutti status --json`` prints."""
        return json.loads(self._door.status())

    def close(self) -> None:
        """End the connection and its thread. Jobs go on."""
        self._door.close()
        _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for cluster in list(_open):
        cluster.close()


# ---- what a job file would say


def _toml(said: Mapping[str, Any], roles: Sequence[Role]) -> str:
    tables: list[tuple[str, str, Mapping[str, Any]]] = []
    lines = []
    for key, value in said.items():
        if key in _KINDS and isinstance(value, Mapping):
            tables += [(key, name, keys) for name, keys in value.items()]
        elif value is not None:
            lines.append(f"{_text(key)} = {_value(value)}")
    tables += [(role.kind, role.name, {"command": role.command, **role.keys}) for role in roles]
    for kind, name, keys in tables:
        lines.append(f"[{_text(kind)}.{_text(name)}]")
        if not isinstance(keys, Mapping):
            raise TypeError(f"role {name} must be a dict, not {keys!r}")
        lines += [f"{_text(key)} = {_value(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() | os.PathLike():
            return _text(os.fspath(value))
        case Mapping():
            return f"{{{', '.join(f'{_text(k)} = {_value(v)}' for k, v in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"a job cannot hold {value!r}")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
