"""A parked process that becomes a rank when it is told to: everything slow is done before.

    python -m tutti.spare [--preload numpy,json] script.py args…

The interpreter is up, the modules are imported and the script is compiled. Then it waits for its
rank from the keeper; sets the environment, adds the arguments, and runs the script as __main__.
Outside of a job, or when it is started as a rank, it runs the script at once. When the keeper goes
away, so does the spare. docs/keeper.md says what travels.
"""

import importlib
import os
import sys
import types
from pathlib import Path

VARIABLE = "TUTTI_SPARE_FD"
USAGE = "usage: python -m tutti.spare [--preload MODULE,…] script.py [args…]"


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
    if not words or words[0].startswith("-"):
        sys.exit(USAGE)
    for name in filter(None, preload):
        importlib.import_module(name)
    script = Path(words[0])
    code = compile(script.read_bytes(), words[0], "exec", dont_inherit=True)
    parked = os.environ.pop(VARIABLE, None)
    if parked is not None:
        assignment = read_assignment(int(parked))
        if assignment is None:
            sys.exit("tutti.spare: the keeper has gone away")
        os.environ.update(assignment[0])
        words = words + assignment[1]
    run_as_main(code, words)


def run_as_main(code: types.CodeType, words: list[str]) -> None:
    """What `python script.py args…` would do."""
    sys.argv = list(words)
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(words[0]).resolve().parent)
    module = types.ModuleType("__main__")
    module.__file__ = words[0]
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
