"""Tutti trains one model on many computers as if they were one."""

from tutti._core import hash64, parse_duration
from tutti._core import version as __version__
from tutti._error import Error

__all__ = ["Error", "__version__", "hash64", "parse_duration"]
