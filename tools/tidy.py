"""Rules about the text of the repository that no compiler checks; tests/tidy_test.py runs them.

Each rule takes sources and gives complaints, "file:line: what is wrong". A source is a path inside
the repository and its text, so that a rule can be tried on text that was never written to a file.
"""

import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 800
MAX_COLUMNS = 100
CPP = (".cc", ".h", ".inc")
PUBLIC = "tutti/"  # include/tutti/: headers for programs that are not ours, free for every layer
CODE = (*CPP, ".c", ".py", ".pyi", ".proto", ".ts", ".svelte")

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|(<[^>]+>))')


@dataclass(frozen=True)
class Source:
    path: str
    text: str

    @property
    def is_cpp(self) -> bool:
        return self.path.endswith(CPP)

    @property
    def is_test(self) -> bool:
        return re.search(r"_(test|fuzz)\.(cc|h)$", self.path) is not None

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def code_lines(self) -> list[str]:
        """The lines of C++ without what is said in comments and strings."""
        blank = COMMENT_OR_STRING.sub(lambda match: "\n" * match[0].count("\n"), self.text)
        return blank.splitlines()

    @cached_property
    def includes(self) -> list[tuple[int, str, bool]]:
        """Line, name and whether it is one of ours. System headers keep their <>."""
        found = ((n, INCLUDE.match(line)) for n, line in enumerate(self.lines, 1))
        return [(n, m[1] or m[2], m[1] is not None) for n, m in found if m]


@dataclass(frozen=True)
class Allowed:
    file: str
    what: str
    reason: str


@dataclass
class Table:
    """tools/layers.toml."""

    may_include: dict[str, list[str]]
    tests_may_include: list[str]
    allowed: list[Allowed] = field(default_factory=list)

    @classmethod
    def load(cls, text: str) -> "Table":
        data = tomllib.loads(text)
        return cls(
            data["may_include"],
            data["tests"]["may_include"],
            [Allowed(**entry) for entry in data.get("allow", [])],
        )

    def layer_of(self, path: str) -> str | None:
        """The layer of a path under src/, "wire/rpc.h": the longest that fits."""
        fitting = [name for name in self.may_include if path.startswith(name + "/")]
        return max(fitting, key=len, default=None)

    def permits(self, layer: str, included: str, in_test: bool) -> bool:
        if included.startswith(PUBLIC):
            return True
        target = self.layer_of(included)
        rows = [layer, *self.may_include[layer]]
        if in_test:
            rows += self.tests_may_include
        if target is None:
            return included.split("/")[0] in rows
        if target in rows or ("all" in rows and target != "cli"):
            return True
        # "cluster/client" permits cluster/client.h and cluster/client/….
        return any(included.startswith((f"{row}/", f"{row}.")) for row in rows if "/" in row)


def repository() -> list[Source]:
    """Every text file git knows or would add."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--deduplicate", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    sources = []
    for name in sorted(filter(None, names)):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            sources.append(Source(name, content.decode(errors="replace")))
    return sources


def long_files(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.path.endswith(CODE) and len(source.lines) > MAX_LINES:
            yield f"{source.path}:{MAX_LINES + 1}: longer than {MAX_LINES} lines: likely two ideas"


def wide_lines(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.path.endswith(CODE):
            for number, line in enumerate(source.lines, 1):
                if len(line) > MAX_COLUMNS:
                    yield f"{source.path}:{number}: wider than {MAX_COLUMNS} columns"


def layering(sources: Iterable[Source], table: Table) -> Iterator[str]:
    for source in sources:
        if not (source.is_cpp and source.path.startswith("src/")):
            continue
        layer = table.layer_of(source.path.removeprefix("src/"))
        if layer is None:
            yield f"{source.path}:1: its folder is not in tools/layers.toml"
            continue
        for number, name, ours in source.includes:
            if ours and not table.permits(layer, name, source.is_test):
                yield f"{source.path}:{number}: {layer} may not include {name}"


NAMESPACE = re.compile(r"^namespace\s*([\w:]*)\s*\{")
TYPE = re.compile(r"^(?:struct|class|enum class)\s+(?:alignas\([^)]*\)\s+)?(\w+)\b(?!::)[^;(]*\{")


def shared_names(sources: Iterable[Source]) -> Iterator[str]:
    """Two types of one name: the linker takes the functions of one of them for both."""
    known: dict[tuple[str, str], str] = {}
    for source in sources:
        if not source.path.startswith("src/") or not source.path.endswith(".h"):
            continue
        namespace = ""
        for number, line in enumerate(source.code_lines, 1):
            if opened := NAMESPACE.match(line):
                namespace = opened[1]
            if not (found := TYPE.match(line)) or not namespace:
                continue
            first = known.setdefault((namespace, found[1]), source.path)
            if first != source.path:
                yield f"{source.path}:{number}: {found[1]} is also in {first}; rename one"


def include_cycles(sources: Iterable[Source]) -> Iterator[str]:
    """Headers that include one another, each cycle told once."""
    by_name = {s.path.removeprefix("src/"): s for s in sources if s.is_cpp}
    done: set[str] = set()
    trail: list[str] = []

    def visit(name: str) -> Iterator[str]:
        trail.append(name)
        for number, included, ours in by_name[name].includes:
            if not ours or included not in by_name or included in done:
                continue
            if included in trail:
                cycle = " -> ".join([*trail[trail.index(included) :], included])
                yield f"{by_name[name].path}:{number}: includes go round: {cycle}"
            else:
                yield from visit(included)
        done.add(trail.pop())

    for name in sorted(by_name):
        if name not in done:
            yield from visit(name)


# What the precompiled header has, and the names that need it.
HEADER_OF = {
    "<algorithm>": r"std::(?:ranges::)?(?:adjacent_find|all_of|any_of|binary_search|clamp|"
    r"copy(?:_n)?|count(?:_if)?|equal(?:_range)?|fill(?:_n)?|find(?:_if)?|for_each|generate|"
    r"is_sorted|lexicographical_compare|lower_bound|(?:min|max|minmax)(?:_element)?|mismatch|"
    r"none_of|nth_element|partition|remove(?:_if)?|replace(?:_if)?|reverse|rotate|search|"
    r"(?:stable_)?sort|transform|unique|upper_bound|(?:push|pop|make)_heap)\b(?=[(<])",
    "<array>": r"std::(?:array|to_array)\b",
    "<chrono>": r"std::chrono\b",
    "<coroutine>": r"std::(?:coroutine_handle|noop_coroutine|suspend_\w+)\b",
    "<deque>": r"std::deque\b",
    "<expected>": r"std::(?:un)?expected\b",
    "<fmt/format.h>": r"\bfmt::\w+",
    "<functional>": r"std::(?:function|hash|invoke|greater|less|plus|reference_wrapper)\b(?=[(<{])",
    "<map>": r"std::(?:multi)?map\b",
    "<memory>": r"std::(?:make_unique|make_shared|unique_ptr|shared_ptr|weak_ptr|construct_at|"
    r"destroy_at|addressof|enable_shared_from_this)\b",
    "<optional>": r"std::(?:optional|nullopt|make_optional)\b",
    "<span>": r"std::(?:span|as_bytes|as_writable_bytes)\b",
    "<string>": r"std::(?:string|to_string|getline)\b",
    "<string_view>": r"std::string_view\b",
    "<unordered_map>": r"std::unordered_(?:multi)?map\b",
    "<utility>": r"std::(?:as_const|cmp_\w+|declval|exchange|forward|in_place|index_sequence|"
    r"make_pair|move|pair|swap|to_underlying|unreachable)\b",
    "<variant>": r"std::(?:variant|visit|get_if|holds_alternative|monostate)\b",
    "<vector>": r"std::vector\b",
}
GIVEN_BY = {"<string_view>": {"<string>"}}


def forgotten_includes(sources: Iterable[Source]) -> Iterator[str]:
    """Names whose header neither the file includes nor one of ours that it reads.

    The compiler does not tell: it has them from the precompiled header.
    """
    known = {source.path: source for source in sources if source.is_cpp}

    def read_by(source: Source, seen: dict[str, Source]) -> dict[str, Source]:
        seen[source.path] = source
        folders = ("src/", "include/", "", f"{Path(source.path).parent}/")
        for _, name, ours in source.includes:
            for path in (folder + name for folder in folders if ours):
                if path in known and path not in seen:
                    read_by(known[path], seen)
        return seen

    for source in known.values():
        if not source.path.startswith(("src/", "sims/", "python/")) or source.path.endswith(".inc"):
            continue
        read = read_by(source, {}).values()
        have = {name for each in read for _, name, ours in each.includes if not ours}
        for header, names in HEADER_OF.items():
            if header in have or GIVEN_BY.get(header, set()) & have:
                continue
            for number, line in enumerate(source.code_lines, 1):
                if match := re.search(names, line):
                    yield f"{source.path}:{number}: {match[0]} without #include {header}"
                    break


# Headers that reach the machine past World.
SYSTEM_HEADER = re.compile(
    r"<(sys/(?!types)|linux/|netinet/|arpa/|net/|asm/).*>|"
    r"<(unistd|fcntl|poll|netdb|signal|pthread|dlfcn|spawn|sched|termios|dirent|ifaddrs|pty|"
    r"liburing|semaphore)\.h>|"
    r"<(thread|mutex|shared_mutex|condition_variable|future|barrier|latch|stop_token|semaphore|"
    r"fstream|filesystem|random)>"
)

# Calls whose answer differs from run to run, and what to use instead.
FORBIDDEN_CALLS = {
    r"\b(system|steady|high_resolution|utc|file)_clock::now\b": "World's Clock",
    r"(?<![\w.>:])(::|std::)?time\(\s*(0|NULL|nullptr|&\w+)\s*\)": "World's Clock",
    r"(?<![\w.>:])(::|std::)?(s?rand|[dl]rand48|getrandom|getentropy)\(": ("World's Random"),
    r"\brandom_device\b": "World's Random",
    r"(?<![\w.>])(::|std::)?(secure_)?getenv\(": "an option given by cli/",
    r"\bthis_thread::sleep": "World's Clock",
    r"(?<![\w>])::(?!tutti)[a-z]\w*\(": "World",
    r"(\b|_)(map|set)<\s*(const\s+)?[\w:]+(<[^<>]*>)?\s*(const\s*)?\*\s*[,>]": (
        "an id: addresses differ from run to run"
    ),
}
MAY_READ_ENVIRONMENT = "src/cli/"


def reaching_past_world(sources: Iterable[Source], table: Table) -> Iterator[str]:
    """System headers and calls outside src/world/real/ that no exception excuses."""
    excused = {(allowed.file, allowed.what) for allowed in table.allowed}
    used: set[tuple[str, str]] = set()
    paths: set[str] = set()
    for source in sources:
        paths.add(source.path)
        exempt = source.is_test or source.path.startswith("src/world/real/")
        if not source.is_cpp or not source.path.startswith(("src/", "sims/")) or exempt:
            continue
        for number, what, instead in machine_uses(source):
            if (source.path, what) in excused:
                used.add((source.path, what))
            else:
                yield f"{source.path}:{number}: {what} outside src/world/real/: use {instead}"
    for allowed in table.allowed:
        if not allowed.reason.strip():
            yield f"tools/layers.toml:1: {allowed.file} {allowed.what} is allowed for no reason"
        if (allowed.file, allowed.what) not in used:
            yield f"tools/layers.toml:1: {allowed.file} has no {allowed.what} to allow"


def machine_uses(source: Source) -> Iterator[tuple[int, str, str]]:
    """Line, what it uses as the allow-list names it, and what to use instead."""
    for number, name, ours in source.includes:
        if not ours and SYSTEM_HEADER.fullmatch(name):
            yield number, name, "World"
    for number, line in enumerate(source.code_lines, 1):
        for pattern, instead in FORBIDDEN_CALLS.items():
            if match := re.search(pattern, line):
                if "getenv" in match[0] and source.path.startswith(MAY_READ_ENVIRONMENT):
                    continue
                yield number, match[0].strip(), instead
                break


UNORDERED = re.compile(r"\bunordered_(?:multi)?(?:map|set)<.*>[&\s]+(\w+)\s*[;={),]")
RANGE_FOR = re.compile(r"\bfor\s*\([^;]*?:\s*\*?(?:this->)?(\w+)\s*\)")


def unordered_iteration(sources: Iterable[Source]) -> Iterator[str]:
    """Loops over hash tables: their order is not the same everywhere, so nothing may follow it."""
    known = {source.path: source for source in sources}
    for source in known.values():
        if not source.is_cpp or not source.path.startswith(("src/", "sims/")):
            continue
        header = known.get(re.sub(r"(_test)?\.cc$", ".h", source.path))
        declared_in = source.code_lines + (header.code_lines if header else [])
        tables = {match[1] for line in declared_in for match in UNORDERED.finditer(line)}
        for number, line in enumerate(source.code_lines, 1):
            for match in RANGE_FOR.finditer(line):
                if match[1] in tables:
                    yield f"{source.path}:{number}: loops over the hash table {match[1]}"


# Each word has a letter in brackets, so that this file does not accuse itself.
MARK = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b(.*)")
STUB = re.compile(
    r"not [i]mplemented|[u]nimplemented|Not[I]mplementedError|[p]laceholder|\bfor [n]ow\b|"
    r"in a [r]eal (system|implementation)",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.}])/(wor[k]|far[m]|roo[t]|hom[e]|User[s])/")


def marks_without_reason(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.path.endswith((*CODE, ".cmake")):
            for number, line in enumerate(source.lines, 1):
                if (match := MARK.search(line)) and " because " not in match[2]:
                    yield f"{source.path}:{number}: {match[1]} without 'because …'"


def stubs(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.path.startswith(("src/", "python/", "bench/", "sims/", "dashboard/")):
            for number, line in enumerate(source.lines, 1):
                if match := STUB.search(line):
                    yield f"{source.path}:{number}: '{match[0]}' marks what is not finished"


def machine_paths(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        for number, line in enumerate(source.lines, 1):
            if match := MACHINE_PATH.search(line):
                yield f"{source.path}:{number}: {match[0]} is a path of somebody's machine"


def readme_commands(sources: Iterable[Source]) -> Iterator[str]:
    text = next((source.text for source in sources if source.path == "README.md"), "")
    for command in ("make demo", "make test"):
        if command not in text:
            yield f"README.md:1: does not show '{command}'"


def documented_table(markdown: str) -> dict[str, set[str]]:
    """The table of layers in docs/architecture.md: folder to what it may include."""
    rows: dict[str, set[str]] = {}
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and re.fullmatch(r"`[\w/]+/`", cells[0]):
            rows[cells[0].strip("`/")] = set(re.findall(r"[\w/]+", cells[2]))
    return rows


def documented_states(markdown: str, exists: Callable[[str], bool]) -> Iterator[str]:
    """Rows of that table that call an existing layer planned, or a planned one nothing."""
    for number, line in enumerate(markdown.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and (match := re.fullmatch(r"`([\w/]+)/`", cells[0])):
            planned = cells[3:] == ["planned"]
            if planned == exists(match[1]):
                is_there = (
                    "exists: it is not planned" if planned else "has no folder: it is planned"
                )
                yield f"docs/architecture.md:{number}: {match[1]} {is_there}"
