"""Somebody's script, run up to the place where it says what we want to know."""

import contextlib
import runpy
import sys
from pathlib import Path


class Enough(BaseException):
    """Ends the script; not for its `except Exception`."""


def run_until_enough(script: Path, arguments: list[str]) -> None:
    """As if it were started so; comes back when something raises Enough, or at its end."""
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    with contextlib.suppress(Enough):
        runpy.run_path(str(script), run_name="__main__")
