from typing import Any, Self

from typing_extensions import Buffer

version: str

def hash64(data: Buffer, seed: int = 0) -> int:
    """XXH3 of a contiguous buffer, read in place."""

def parse_duration(text: str) -> float:
    """Seconds in text such as '250ms', '1.5s', '2m30s'; raises tutti.Error."""

def parse_recording(file: bytes) -> dict[str, Any]:
    """The bytes of a recording as a dict; raises tutti.Error."""

class RecordKind:
    """What an event is about; made once and reused."""

    def __init__(self, name: str, a: str = "", b: str = "") -> None: ...

class Counter:
    """A number that only grows, seen live by readers."""

    def add(self, n: int = 1) -> None: ...

class Gauge:
    """A number that goes up and down, seen live by readers."""

    def set(self, value: int) -> None: ...
    def add(self, change: int) -> None: ...

class Span:
    """Something with a beginning and an end: use it with `with`."""

    @property
    def id(self) -> int:
        """Its name within the recording; 0 when nothing is recorded."""

    def set(self, a: int, b: int = 0) -> None:
        """What the record of the end shall say."""

    def end(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Recorder:
    """A process's latest events, in a file that outlives it."""

    def __init__(
        self, path: str, *, process: str = "", lanes: int = 4, records_per_lane: int = 16384
    ) -> None: ...
    def event(self, kind: RecordKind | str, a: int = 0, b: int = 0, span: int = 0) -> None:
        """Records an event, alone or in a span."""

    def span(self, kind: RecordKind | str, a: int = 0, b: int = 0, parent: int = 0) -> Span:
        """Begins a span, perhaps within another."""

    def counter(self, name: str) -> Counter: ...
    def gauge(self, name: str) -> Gauge: ...
    def close(self) -> None:
        """Records nothing more."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Output:
    """What a job prints, as tutti.cluster reads it."""

    def next(self) -> list[tuple[int, int, bytes]]: ...
    def close(self) -> None: ...

class Door:
    """The cluster, as tutti.cluster uses it; answers are JSON."""

    def __init__(self) -> None: ...
    def close(self) -> None: ...
    def status(self) -> str: ...
    def jobs(
        self, all: bool, states: str, user: str, name: str, since: str, limit: int | None
    ) -> str: ...
    def job(self, job: int) -> str: ...
    def processes(self, job: int) -> str: ...
    def submit(self, text: str, file_name: str, folder: str) -> int: ...
    def wait(self, job: int, timeout: float | None) -> str: ...
    def kill(self, job: int, grace: float | None) -> None: ...
    def signal(self, job: int, signal: str, processes: str) -> None: ...
    def verdict(self, job: int) -> str: ...
    def output(self, job: int) -> Output: ...
