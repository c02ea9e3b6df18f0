"""Tutti trains one model on many computers as if they were one."""

from tutti import control, exchange, record
from tutti._core import Recorder, RecordKind, hash64, parse_duration
from tutti._core import version as __version__
from tutti._error import Error

__all__ = [
    "Error",
    "RecordKind",
    "Recorder",
    "__version__",
    "control",
    "exchange",
    "hash64",
    "parse_duration",
    "record",
]
