"""Tutti trains one model on many computers as if they were one."""

import importlib
from typing import TYPE_CHECKING, Any

from tutti import control, fabric, vault
from tutti._core import Recorder, RecordKind, hash64, parse_duration
from tutti._core import version as __version__
from tutti._error import Error, show_errors_short

if TYPE_CHECKING:
    from tutti import cluster, config, data, exchange, generate, nn, optim, record, trainer
    from tutti.cluster import Cluster, Job, Role
    from tutti.config import configure
    from tutti.generate import Generator
    from tutti.trainer import Run, Trainer

__all__ = [
    "Cluster",
    "Error",
    "Generator",
    "Job",
    "RecordKind",
    "Recorder",
    "Role",
    "Run",
    "Trainer",
    "__version__",
    "cluster",
    "config",
    "configure",
    "control",
    "data",
    "exchange",
    "fabric",
    "generate",
    "hash64",
    "nn",
    "optim",
    "parse_duration",
    "record",
    "runs",
    "trainer",
    "vault",
]

show_errors_short()

# Ranks start by the dozen and few of them need these, which take longer to import than the rest:
# they come when they are first asked for.
_LATER = dict.fromkeys(("Cluster", "Job", "Role"), "cluster") | {"configure": "config"}
_LATER |= dict.fromkeys(("Run", "Trainer"), "trainer") | {"Generator": "generate"}
for _name in (
    "cluster",
    "config",
    "data",
    "exchange",
    "generate",
    "nn",
    "optim",
    "record",
    "runs",
    "trainer",
):
    _LATER[_name] = _name


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tutti' has no attribute '{name}'")
    module = importlib.import_module(f"tutti.{_LATER[name]}")
    globals()[name] = module if name == _LATER[name] else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
