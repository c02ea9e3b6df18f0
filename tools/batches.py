"""Says which sources may be compiled as one, so that the headers they share are parsed, and the
templates instantiated, once for all of them:  tools/batches.py SIZE SOURCE…

Prints a number and a source in each line. Files that declare the same name of their own, such as a
constant in an unnamed namespace, are kept apart. Which batch a file is in follows from its path, so
that a new file leaves most of the others where they are.
"""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What stands at the left margin: types, constants, functions.
DECLARATIONS = (
    re.compile(r"^(?:struct|class|enum class|enum|union|using) (?!namespace)(\w+)", re.M),
    re.compile(r"^(?:const\w*|static|inline|thread_local)\b[^(\n]*?(\w+)(?:\[.*\])? ?[={;]", re.M),
    re.compile(r"^(?!using|namespace)[A-Za-z][^(=\n]*[ *&](\w+)\(", re.M),
    re.compile(r"^# *define (\w+)", re.M),
)


def own_names(source: Path) -> set[str]:
    text = source.read_text()
    return {name for declaration in DECLARATIONS for name in declaration.findall(text)}


def batches(sources: list[Path], size: int) -> list[list[Path]]:
    """About `size` in each, none with a name that another in its batch has."""
    count = -(-len(sources) // size)
    made: list[list[Path]] = [[] for _ in range(count)]
    taken: list[set[str]] = [set() for _ in range(count)]
    for source in sorted(sources):
        names = own_names(source)
        path = source.resolve().relative_to(ROOT).as_posix()
        first = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4]) % count
        for at in (*range(first, count), *range(first), *range(count, len(made))):
            if not taken[at] & names:
                break
        else:
            at = len(made)
            made.append([])
            taken.append(set())
        made[at].append(source)
        taken[at] |= names
    return [batch for batch in made if batch]


def main() -> int:
    size, *sources = sys.argv[1:]
    for number, batch in enumerate(batches([Path(source) for source in sources], int(size))):
        for source in batch:
            print(number, source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
