"""Tutti trains one model on many computers as if they were one."""

from tutti import cluster, control, exchange, fabric, record, vault
from tutti._core import Recorder, RecordKind, hash64, parse_duration
from tutti._core import version as __version__
from tutti._error import Error
from tutti.cluster import Cluster, Job, Role

__all__ = [
    "Cluster",
    "Error",
    "Job",
    "RecordKind",
    "Recorder",
    "Role",
    "__version__",
    "cluster",
    "control",
    "exchange",
    "fabric",
    "hash64",
    "parse_duration",
    "record",
    "vault",
]
