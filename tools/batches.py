"""Says which sources may be compiled as one, so that the headers they share are parsed, and the
templates instantiated, once for all of them:  tools/batches.py SIZE SOURCE…

Prints a number and a source in each line. Files that declare the same name of their own, such as a
constant in an unnamed namespace, are kept apart, and so is one that has a name of its own which a
header of the other has too. What includes code or takes macros back stays alone. Which batch a file
is in follows from its path, so that a new file leaves most of the others where they are.
"""

import functools
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What stands at the left margin: types, constants, functions.
DECLARATIONS = (
    re.compile(r"^(?:struct|class|enum class|enum|union|using) (?!namespace)(\w+)\b(?!::)", re.M),
    re.compile(r"^(?:const\w*|static|inline|thread_local)\b[^(\n]*?(\w+)(?:\[.*\])? ?[={;]", re.M),
    re.compile(r"^(?!using|namespace)[A-Za-z][^(=\n]*[ *&](\w+)\(", re.M),
    re.compile(r"^# *define (\w+)", re.M),
)
IMPORT = re.compile(r"^using (?:\w+::)+(\w+);", re.M)
ALONE = re.compile(r'^# *(?:undef\b|include ".*\.(?:cc|inc)")', re.M)
INCLUDE = re.compile(r'^# *include "([^"]+)"', re.M)


@functools.cache
def own_names(source: Path) -> frozenset[str]:
    text = source.read_text()
    return frozenset(name for declaration in DECLARATIONS for name in declaration.findall(text))


@functools.cache
def headers_of(source: Path) -> frozenset[Path]:
    """All headers of this repository that it reads."""
    seen: set[Path] = set()
    for name in INCLUDE.findall(source.read_text()):
        for root in (ROOT / "src", ROOT / "include", ROOT, source.parent):
            header = root / name
            if header.is_file() and header not in seen:
                seen |= {header} | headers_of(header)
                break
    return frozenset(seen)


class Batch:
    """Files, the names that they declare, and those that their headers do."""

    def __init__(self) -> None:
        self.sources: list[Path] = []
        self.own: set[str] = set()
        self.private: set[str] = set()  # of one file, and not in its headers
        self.in_headers: set[str] = set()
        self.closed = False

    def take(self, source: Path) -> bool:
        """Whether it may be compiled with those that are here; then it is one of them."""
        text = source.read_text()
        imported = set(IMPORT.findall(text))
        own = own_names(source) | imported
        in_headers = set().union(*(own_names(header) for header in headers_of(source)))
        private = own - in_headers | imported
        alone = ALONE.search(text) is not None
        if self.closed or (alone and self.sources):
            return False
        if own & self.own or private & self.in_headers or in_headers & self.private:
            return False
        self.sources.append(source)
        self.own |= own
        self.private |= private
        self.in_headers |= in_headers
        self.closed = alone
        return True


def batches(sources: list[Path], size: int) -> list[list[Path]]:
    """About `size` in each, none with a name that another in its batch has."""
    count = -(-len(sources) // size)
    made = [Batch() for _ in range(count)]
    for source in sorted(sources):
        path = source.resolve().relative_to(ROOT).as_posix()
        first = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4]) % count
        for at in (*range(first, count), *range(first), *range(count, len(made))):
            if made[at].take(source):
                break
        else:
            made.append(Batch())
            made[-1].take(source)
    return [batch.sources for batch in made if batch.sources]


def main() -> int:
    size, *sources = sys.argv[1:]
    for number, batch in enumerate(batches([Path(source) for source in sources], int(size))):
        for source in batch:
            print(number, source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
