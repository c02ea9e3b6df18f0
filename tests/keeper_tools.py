"""A controller of a keeper in Python, written from docs/keeper.md alone."""

import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable
from typing import Any

from run_tools import PATIENCE_S, TUTTI

KINDS = {
    "hello": 1,
    "spawn": 2,
    "signal": 3,
    "end": 4,
    "acknowledge": 5,
    "list": 6,
    "create_arena": 7,
    "drop_arena": 8,
    "shutdown": 9,
    "assign": 10,
    "reset": 11,
}
ANSWERS = {
    64: "welcome",
    65: "failure",
    66: "spawned",
    67: "signalled",
    68: "exited",
    69: "arenas",
    70: "done",
}
NOTHING = 2  # Spawn.Output
UNSUPPORTED = 9  # tutti::Code

# What protobuf calls a message: field numbers and values. Texts and nested messages are bytes.
Fields = dict[int, Any]


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def encode(fields: Fields) -> bytes:
    out = b""
    for number, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, int):
                out += varint(number << 3) + varint(value)
                continue
            if isinstance(value, dict):
                value = encode(value)
            elif isinstance(value, str):
                value = value.encode()
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def decode(data: bytes) -> dict[int, list[Any]]:
    fields: dict[int, list[Any]] = {}
    at = 0

    def take_varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        key = take_varint()
        if key & 7 == 2:
            size = take_varint()
            fields.setdefault(key >> 3, []).append(data[at : at + size])
            at += size
        else:
            assert key & 7 == 0
            numbers = fields.setdefault(key >> 3, [])
            numbers.append(take_varint())
    return fields


class Keeper:
    """A keeper that was started for one test, and the stream to it."""

    def __init__(
        self, environment: dict[str, str], *options: str, lowest: int = 1, highest: int = 2
    ) -> None:
        self.stream, theirs = socket.socketpair()
        self.stream.settimeout(PATIENCE_S)
        self.process = subprocess.Popen(
            [TUTTI, "keeper", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[3],
            preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
        )
        theirs.close()
        self.environment = environment
        self.buffer = b""
        self.fds: list[int] = []
        self.send("hello", {1: lowest, 2: highest, 3: "test"})
        kind, welcome, _ = self.receive()
        assert kind == "welcome", welcome[2][0].decode()
        self.version = welcome[1][0]

    def send(self, kind: str, fields: Fields) -> None:
        body = encode(fields)
        self.stream.sendall(struct.pack("<IHH", len(body), KINDS[kind], 0) + body)

    def read(self, size: int) -> None:
        while len(self.buffer) < size:
            data, fds, _, _ = socket.recv_fds(self.stream, 1 << 16, 250)
            assert data, "the keeper has closed its stream"
            self.buffer += data
            self.fds += fds

    def receive(self) -> tuple[str, dict[int, list[Any]], list[int]]:
        self.read(8)
        size, kind, handles = struct.unpack_from("<IHH", self.buffer)
        self.read(8 + size)
        body, self.buffer = self.buffer[8 : 8 + size], self.buffer[8 + size :]
        fds, self.fds = self.fds[:handles], self.fds[handles:]
        return ANSWERS[kind], decode(body), fds

    def ask(self, kind: str, fields: Fields) -> tuple[str, dict[int, list[Any]], list[int]]:
        self.send(kind, fields)
        return self.receive()

    def create_arena(self, name: str, size: int) -> int:
        kind, _, fds = self.ask("create_arena", {1: name, 2: size})
        assert kind == "arenas"
        return fds[0]

    def spawn(self, command: Iterable[str], ranks: list[Fields], **more: Any) -> list[int]:
        """Start ranks; gives the handles of their output: two each, or none."""
        settings = [f"{key}={value}" for key, value in self.environment.items()]
        fields = {1: [str(word) for word in command], 2: settings, 4: ranks}
        fields |= {{"output": 5, "arena": 13, "epoch": 14}[key]: more[key] for key in more}
        kind, answer, fds = self.ask("spawn", fields)
        assert kind == "spawned", answer
        return fds

    def exit(self) -> dict[int, list[Any]]:
        """The next exit, one rank at a time: 2 rank, 4 code, 5 signal, 12 spare."""
        kind, answer, _ = self.receive()
        assert kind == "exited", (kind, answer)
        assert len(answer[1]) == 1
        return {2: [0], 4: [0], 5: [0], 12: [0]} | decode(answer[1][0])

    def kill(self, rank: int) -> None:
        kind, answer, _ = self.ask("signal", {1: [rank], 2: int(signal.SIGKILL)})
        assert (kind, answer) == ("signalled", {1: [1]})

    def close(self) -> None:
        self.send("shutdown", {})
        assert self.process.wait(PATIENCE_S) == 0
        self.stream.close()
