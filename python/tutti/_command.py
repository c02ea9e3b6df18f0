"""How commands written in Python end."""

import os
import sys
from collections.abc import Callable

from tutti._error import Error


def call(program: str, what: Callable[[], None]) -> None:
    """Runs a command: what goes wrong is told in a line, and in the exit code."""
    try:
        what()
    except Error as error:
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
