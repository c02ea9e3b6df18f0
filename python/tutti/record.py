"""Reads what processes left in their flight recorders.

    recording = tutti.record.read("/dev/shm/worker-3.rec")
    slow = [r for r in recording.records if r.type == "end" and r.duration_ns > 1_000_000]

The process may be alive, done or killed. To write, use ``tutti.Recorder``.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

from tutti._core import parse_recording
from tutti._error import Error

__all__ = ["Record", "Recording", "read"]


class Record(NamedTuple):
    """One event, or the begin or the end of a span."""

    type: Literal["event", "begin", "end"]
    kind: str
    time_ns: int  # monotonic, as Recording.created_ns
    thread: int
    a: int
    b: int
    a_label: str
    b_label: str
    sequence: int
    span: int  # begin, end: the span; event: the span it belongs to, or 0
    parent: int  # begin: the enclosing span, or 0
    began_ns: int  # end: when the span began

    @property
    def duration_ns(self) -> int:
        """How long the span took that ends here; 0 for other records."""
        return self.time_ns - self.began_ns if self.type == "end" else 0


@dataclass(frozen=True)
class Recording:
    """What a recording held when it was read; records are in order of time."""

    host: str
    process: str
    pid: int
    created_ns: int
    created_unix_ns: int
    closed_ns: int  # 0: the process still records, or was killed
    records: list[Record]
    counters: dict[str, int]
    gauges: dict[str, int]
    overwritten: int  # older records that made room for newer ones
    unfinished: int  # begun when the process died, or being written just now
    refused_names: int  # kinds, counters and gauges that found their table full

    @property
    def lost(self) -> int:
        """Records that were begun and are not in `records`."""
        return self.overwritten + self.unfinished


def read(path: str | PathLike[str]) -> Recording:
    """Reads a recording. What is none, or damaged, raises ``tutti.Error`` that says where."""
    try:
        fields = parse_recording(Path(path).read_bytes())
    except Error as error:
        raise Error(f"{path}: {error}", error.code) from None
    fields["records"] = [Record._make(record) for record in fields["records"]]
    return Recording(**fields)
