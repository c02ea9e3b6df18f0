"""Tutti trains one model on many computers as if they were one."""

import importlib
from typing import TYPE_CHECKING, Any

from tutti import control, fabric, vault
from tutti._core import Recorder, RecordKind, hash64, parse_duration
from tutti._core import version as __version__
from tutti._error import Error

if TYPE_CHECKING:
    from tutti import cluster, config, exchange, nn, optim, record
    from tutti.cluster import Cluster, Job, Role
    from tutti.config import configure

__all__ = [
    "Cluster",
    "Error",
    "Job",
    "RecordKind",
    "Recorder",
    "Role",
    "__version__",
    "cluster",
    "config",
    "configure",
    "control",
    "exchange",
    "fabric",
    "hash64",
    "nn",
    "optim",
    "parse_duration",
    "record",
    "vault",
]

# Ranks start by the dozen and few of them need these, which take longer to import than the rest:
# they come when they are first asked for.
_LATER = {name: name for name in ("cluster", "config", "exchange", "nn", "optim", "record")}
_LATER |= dict.fromkeys(("Cluster", "Job", "Role"), "cluster") | {"configure": "config"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tutti' has no attribute '{name}'")
    module = importlib.import_module(f"tutti.{_LATER[name]}")
    globals()[name] = module if name == _LATER[name] else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
