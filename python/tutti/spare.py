"""A parked process that becomes a rank when it is told to: everything slow is done before.

    python -m tutti.spare [--preload numpy,json] script.py args…
    python -m tutti.spare [--preload numpy,json] -m module args…

The interpreter is up, the modules are imported and the script is compiled. Then it tells the agent
that it is ready and waits for its rank from the keeper; says that it took it, sets the environment,
adds the arguments, and runs the script as __main__.
Outside of a job, or when it is started as a rank, it runs the script at once. When the keeper goes
away, so does the spare. docs/keeper.md says what travels.
"""

import contextlib
import importlib
import importlib.util
import os
import runpy
import sys
import types
from pathlib import Path

from tutti import exchange

VARIABLE = "TUTTI_SPARE_FD"
NUMBER = "TUTTI_SPARE"  # among the spares, for the agent
USAGE = "usage: python -m tutti.spare [--preload MODULE,…] (script.py | -m module) [args…]"


def read_assignment(fd: int) -> tuple[dict[str, str], list[str]] | None:
    """Wait for a rank: environment and arguments, or None when the keeper has gone away.

    Each is a list of strings that end with a zero byte; an empty string ends the list.
    """
    received = b""
    while True:
        strings = received.split(b"\0")[:-1]
        if strings.count(b"") >= 2:
            break
        piece = os.read(fd, 1 << 16)
        if not piece:
            return None
        received += piece
    # From now on it is that rank; without this byte it never was.
    with contextlib.suppress(OSError):
        os.write(fd, b"!")
    os.close(fd)
    middle = strings.index(b"")
    end = strings.index(b"", middle + 1)
    settings = (os.fsdecode(setting).split("=", 1) for setting in strings[:middle])
    return dict(settings), [os.fsdecode(word) for word in strings[middle + 1 : end]]


def main(words: list[str]) -> None:
    preload: list[str] = []
    if words[:1] == ["--preload"] and len(words) > 1:
        preload = words[1].split(",")
        words = words[2:]
    is_module = words[:1] == ["-m"]
    words = words[1:] if is_module else words
    if not words or words[0].startswith("-"):
        sys.exit(USAGE)
    if not is_module and not sys.flags.safe_path:
        sys.path[0] = str(Path(words[0]).resolve().parent)  # what is imported may be beside it
    for name in filter(None, preload):
        importlib.import_module(name)
    code = None
    if not is_module:
        code = compile(Path(words[0]).read_bytes(), words[0], "exec", dont_inherit=True)
    elif importlib.util.find_spec(words[0]) is None:
        sys.exit(f"tutti.spare: there is no module {words[0]}")
    words = words + wait_for_rank()
    if code is None:
        sys.argv = list(words)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        run_as_main(code, words)


def wait_for_rank() -> list[str]:
    """Until it is a rank, at once when it is none that waits; gives arguments to be added."""
    parked = os.environ.pop(VARIABLE, None)
    number = os.environ.pop(NUMBER, None)
    if parked is None:
        return []
    if number is not None:
        exchange.tell_ready(int(number))
    assignment = read_assignment(int(parked))
    if assignment is None:
        sys.exit("tutti.spare: the keeper has gone away")
    os.environ.update(assignment[0])
    return assignment[1]


def run_as_main(code: types.CodeType, words: list[str]) -> None:
    """What `python script.py args…` would do."""
    sys.argv = list(words)
    module = types.ModuleType("__main__")
    module.__file__ = words[0]
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
