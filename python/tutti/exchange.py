"""Meeting the other ranks of a job: barriers, and small values by key.

    tutti.exchange.put(f"address/{rank}", b"10.0.0.7:5000")
    tutti.exchange.barrier("ready", timeout=60)
    peer = tutti.exchange.get("address/0")

Calls go through this host's agent to the job's coordinator; no rank serves the others. What was put
and who has arrived belongs to one epoch of the gang: when ranks are started again, all of it is
forgotten, and whoever goes on or waits gets EpochOver. Any thread may call. docs/exchange.md is the
manual.
"""

import os
import random
import socket
import struct
import sys
import threading
import time

from tutti._error import Error

__all__ = ["EpochOver", "TimedOut", "barrier", "get", "put"]

MAX_NAME_BYTES = 256
MAX_VALUE_BYTES = 64 << 10

MAGIC = 0x48435854  # "TXCH"
VERSION = 1
BARRIER, PUT, GET, READY = 1, 2, 3, 4
REQUEST = struct.Struct("<IHHQQQQqIIII")
ANSWER = struct.Struct("<IHHQII")
# As in the runtime.
CODES = (
    *("cancelled", "deadline", "invalid", "not_found", "exists", "denied", "unavailable"),
    *("exhausted", "corrupt", "unsupported", "io", "internal"),
)

# An agent that was killed is started again within seconds.
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
# What the agent may take past the time that a call has.
AGENT_PATIENCE_S = 5.0


class EpochOver(Error):
    """Ranks of the gang were started again: what was exchanged before is forgotten."""


class TimedOut(Error, TimeoutError):
    """The time allowed ran out; the text says who is missing."""


class _Gang:
    """What this process has said so far, in the gang's present epoch."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.epoch = 0  # as the agent told it; 0 before the first answer
        self.passed: dict[str, int] = {}  # barriers, by name
        self.puts = 0

    def begin_anew(self, over: int) -> None:
        with self.lock:
            if self.epoch == over:
                self.epoch = 0
                self.passed = {}

    def joined(self, epoch: int) -> None:
        with self.lock:
            if self.epoch == 0:
                self.epoch = epoch


_gang = _Gang()


def barrier(name: str, timeout: float | None = None) -> None:
    """Wait until every rank of this role has called this, as often as we have with this name.

    A rank whose time is up has arrived nevertheless, and may call again.
    """
    with _gang.lock:
        epoch, passed = _gang.epoch, _gang.passed.get(name, 0)
    joined, _ = _call(BARRIER, name, b"", epoch, passed, timeout)
    with _gang.lock:
        if _gang.epoch == joined:
            _gang.passed[name] = passed + 1


def put(key: str, value: bytes, timeout: float | None = None) -> None:
    """Store a value for every process of the job; it is there when this returns.

    A key belongs to the rank that put it first, which may put it again.
    """
    with _gang.lock:
        _gang.puts += 1
        epoch, serial = _gang.epoch, _gang.puts
    _call(PUT, key, bytes(value), epoch, serial, timeout)


def get(key: str, timeout: float | None = None) -> bytes:
    """The value of a key, as soon as somebody has put it."""
    return _call(GET, key, b"", _gang.epoch, 0, timeout)[1]


def tell_ready(spare: int) -> None:
    """Of a spare: everything slow is done. The agent need not hear it."""
    for _ in range(3):
        try:
            _ask(_request(READY, "", b"", 0, 0, None, process=spare), 1.0)
            return
        except OSError:
            time.sleep(0.2)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise Error(
            f"{name} is not set: the exchange is for processes of a job on a cluster; start them "
            "with `tutti submit`, or `tutti run` where a cluster is up",
            "unavailable",
        )
    return value


def _request(op, name, value, epoch, number, timeout, process=None) -> bytes:
    encoded = name.encode()
    if op != READY and not 1 <= len(encoded) <= MAX_NAME_BYTES:
        raise Error(f"a name or key has 1 to {MAX_NAME_BYTES} bytes, not {len(encoded)}", "invalid")
    if len(value) > MAX_VALUE_BYTES:
        raise Error(
            f"a value has at most {MAX_VALUE_BYTES} bytes, not {len(value)}; put larger things in "
            "files",
            "invalid",
        )
    job = int(_variable("TUTTI_JOB"))
    life = int(os.environ.get("TUTTI_EPOCH", "0"))
    if process is None:
        process = int(_variable("TUTTI_PROCESS"))
    timeout_ns = -1 if timeout is None else int(max(timeout, 0) * 1e9)
    sizes = len(encoded), len(value), 0
    header = MAGIC, VERSION, op, job, life, epoch, number, timeout_ns, process, *sizes
    return REQUEST.pack(*header) + encoded + value


def _call(op, name, value, epoch, number, timeout) -> tuple[int, bytes]:
    """Ask until there is an answer: what is asked twice counts once.

    Gives the gang's epoch, and a value.
    """
    until = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE_S
    while True:
        left = None if until is None else max(until - time.monotonic(), 0)
        request = _request(op, name, value, epoch, number, left)
        try:
            answer = _ask(request, None if left is None else left + AGENT_PATIENCE_S)
            break
        except OSError as error:
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"this host's agent does not answer: {error}", "deadline") from error
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, LONGEST_PAUSE_S)
    code, told_epoch, message, found = answer
    if code == 0:
        _gang.joined(told_epoch)
        return told_epoch, found
    word = CODES[code - 1] if code <= len(CODES) else "internal"
    if word == "denied" and told_epoch != 0:
        _gang.begin_anew(epoch)
        raise EpochOver(message, word)
    raise (TimedOut if word == "deadline" else Error)(message, word)


def _ask(request: bytes, patience: float | None) -> tuple[int, int, str, bytes]:
    """One request, one answer; OSError when there is no agent, or it ends meanwhile."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(patience)
        _connect(stream, _variable("TUTTI_EXCHANGE"))
        stream.sendall(request)
        magic, _, code, epoch, message, value = ANSWER.unpack(_read(stream, ANSWER.size))
        if magic != MAGIC:
            raise Error("what answers is no agent of tutti", "corrupt")
        text = _read(stream, message).decode(errors="replace")
        found = _read(stream, value)
    if code == 1 + CODES.index("cancelled"):
        raise ConnectionResetError(text)  # it is about to end, and the next one has to be asked
    return code, epoch, text, found


def _connect(stream: socket.socket, path: str) -> None:
    """To the agent's socket: a file, or with @ a name, which anybody could have but root must."""
    if not path.startswith("@"):
        stream.connect(path)
        return
    stream.connect("\0" + path[1:])
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    if int.from_bytes(credentials[4:8], sys.byteorder) != 0:
        raise Error("what answers does not run as root, so it is not the agent", "denied")


def _read(stream: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = stream.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionResetError("the agent went away")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
