"""The rules of tools/tidy.py hold for this repository, and each of them can fail."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import tidy  # noqa: E402
from tidy import Source, Table  # noqa: E402


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return tidy.repository()


@pytest.fixture(scope="module")
def table() -> Table:
    return Table.load((ROOT / "tools/layers.toml").read_text())


def assert_clean(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


def test_files_are_short(sources: list[Source]) -> None:
    assert_clean(list(tidy.long_files(sources)))
    assert list(tidy.long_files([Source("src/a.cc", "x\n" * 801)])) == [
        "src/a.cc:801: longer than 800 lines: likely two ideas"
    ]
    assert not list(tidy.long_files([Source("src/a.cc", "x\n" * 800)]))


def test_lines_fit_in_100_columns(sources: list[Source]) -> None:
    assert_clean(list(tidy.wide_lines(sources)))
    bad = Source("src/a.cc", "ok\n" + "x" * 101 + "\n" + "é" * 100)
    assert list(tidy.wide_lines([bad])) == ["src/a.cc:2: wider than 100 columns"]


def test_layers_include_only_what_their_row_allows(sources: list[Source], table: Table) -> None:
    assert_clean(list(tidy.layering(sources, table)))


@pytest.mark.parametrize(
    ("path", "include", "fine"),
    [
        ("src/base/a.cc", "base/b.h", True),
        ("src/base/a.cc", "world/b.h", False),
        ("src/world/a.cc", "world/sim/b.h", False),
        ("src/world/a_test.cc", "world/sim/b.h", True),
        ("src/wire/a.cc", "cluster/b.h", False),
        ("src/wire/a.cc", "world/real/b.h", False),
        ("src/train/a.cc", "cluster/client.h", True),
        ("src/train/a.cc", "cluster/client/b.h", True),
        ("src/train/a.cc", "cluster/clients.h", False),
        ("src/train/a.cc", "cluster/head.h", False),
        ("src/cli/a.cc", "cluster/head.h", True),
        ("src/cli/a.cc", "sims/b.h", True),
        ("src/cluster/a.cc", "cli/b.h", False),
        ("src/cluster/a.cc", "nowhere/b.h", False),
    ],
)
def test_layering_tells_allowed_from_forbidden(
    path: str, include: str, fine: bool, table: Table
) -> None:
    sample = Source(path, f'#include <vector>\n#include "{include}"\n')
    complaints = list(tidy.layering([sample], table))
    assert complaints == [] if fine else complaints[0].startswith(f"{path}:2: ")


def test_a_folder_outside_the_table_is_refused(table: Table) -> None:
    sample = Source("src/newlayer/a.cc", "")
    assert list(tidy.layering([sample], table)) == [
        "src/newlayer/a.cc:1: its folder is not in tools/layers.toml"
    ]


def test_the_table_has_no_cycles_and_is_the_one_in_the_documents(table: Table) -> None:
    rows = {name: set(row) for name, row in table.may_include.items()}
    settled: set[str] = set()
    while ready := {n for n, row in rows.items() if n not in settled and row <= settled}:
        settled |= ready | {f"{name}/client" for name in ready}
    assert rows.keys() - settled == {"cli"}
    documented = tidy.documented_table((ROOT / "docs/architecture.md").read_text())
    assert documented == rows


def test_the_documents_tell_planned_layers_from_those_there_are() -> None:
    markdown = (ROOT / "docs/architecture.md").read_text()
    exists = lambda layer: (ROOT / "src" / layer).is_dir()  # noqa: E731
    assert_clean(list(tidy.documented_states(markdown, exists)))
    rows = "| `a/` | x | base | planned |\n| `b/` | x | base | |\n| `c/` | x | base | |\n"
    assert list(tidy.documented_states(rows, lambda layer: layer in "ac")) == [
        "docs/architecture.md:1: a exists: it is not planned",
        "docs/architecture.md:2: b has no folder: it is planned",
    ]


def test_no_two_types_share_a_name(sources: list[Source]) -> None:
    assert_clean(list(tidy.shared_names(sources)))
    twice = [
        Source("src/base/a.h", "namespace tutti {\nstruct Row;\nstruct Row {\n};\n}"),
        Source("src/world/b.h", "namespace tutti {\nclass Row final : public X {\n};\n}"),
        Source("src/wire/c.h", "namespace tutti::wire {\nstruct Row {\n};\n}"),
    ]
    assert list(tidy.shared_names(twice)) == [
        "src/world/b.h:2: Row is also in src/base/a.h; rename one"
    ]


def test_includes_do_not_go_round(sources: list[Source]) -> None:
    assert_clean(list(tidy.include_cycles(sources)))
    ring = [
        Source("src/base/a.h", '#include "base/b.h"\n'),
        Source("src/base/b.h", '\n#include "base/c.h"\n'),
        Source("src/base/c.h", '#include "base/a.h"\n'),
    ]
    assert list(tidy.include_cycles(ring)) == [
        "src/base/c.h:1: includes go round: base/a.h -> base/b.h -> base/c.h -> base/a.h"
    ]
    assert not list(tidy.include_cycles(ring[:2]))


def test_no_file_leans_on_the_precompiled_header(sources: list[Source]) -> None:
    assert_clean(list(tidy.forgotten_includes(sources)))
    header = Source("src/base/a.h", "#include <vector>\n")
    bad = Source(
        "src/base/a.cc",
        '#include "base/a.h"\n// no std::map yet\nstd::vector<int> x;\nstd::map<int, int> y;\n',
    )
    assert list(tidy.forgotten_includes([header, bad])) == [
        "src/base/a.cc:4: std::map without #include <map>"
    ]
    every = (ROOT / "cmake/layer.cmake").read_text().split("tutti_pch_headers\n")[1].split(")")[0]
    assert set(every.split()) == tidy.HEADER_OF.keys()


def test_only_the_real_world_reaches_the_machine(sources: list[Source], table: Table) -> None:
    assert_clean(list(tidy.reaching_past_world(sources, table)))


NO_EXCEPTIONS = Table({}, [])


@pytest.mark.parametrize(
    "line",
    [
        "#include <sys/socket.h>",
        "#include <unistd.h>",
        "#include <thread>",
        "#include <fstream>",
        "auto t = std::chrono::steady_clock::now();",
        "auto t = time(nullptr);",
        "auto t = ::time(NULL);",
        "int r = rand();",
        "std::random_device seed;",
        'auto* home = std::getenv("HOME");',
        "std::map<Host*, int> ranks;",
        "std::unordered_set<const Strand *> live;",
        "std::this_thread::sleep_for(1s);",
        "::kill(pid, SIGTERM);",
        "if (::close(fd) != 0) return;",
    ],
)
def test_reaching_past_world_is_found(line: str) -> None:
    complaints = list(
        tidy.reaching_past_world([Source("src/wire/a.cc", "\n" + line)], NO_EXCEPTIONS)
    )
    assert len(complaints) == 1
    assert complaints[0].startswith("src/wire/a.cc:2: ")
    for exempt in ("src/world/real/a.cc", "src/wire/a_test.cc", "bench/a.cc"):
        assert not list(tidy.reaching_past_world([Source(exempt, line)], NO_EXCEPTIONS))


@pytest.mark.parametrize(
    "line",
    [
        "// time(nullptr) is not for us",
        'log("rand() was called");',
        "auto t = clock.time();",
        "co_await operand(x);",
        "std::map<int, Host*> hosts;",
        "std::vector<Host*> hosts;",
        "#include <atomic>",
        "::tutti::log_internal::write(level);",
        "return ::std::move(x);",
    ],
)
def test_innocent_lines_pass(line: str) -> None:
    assert not list(tidy.reaching_past_world([Source("src/wire/a.cc", line)], NO_EXCEPTIONS))


def test_an_exception_needs_a_reason_and_a_use() -> None:
    used = Source("src/wire/a.cc", "#include <mutex>\n")
    allow = '[may_include]\n[tests]\nmay_include = []\n[[allow]]\nfile = "src/wire/a.cc"\n'
    good = Table.load(allow + 'what = "<mutex>"\nreason = "two threads meet here"\n')
    assert not list(tidy.reaching_past_world([used], good))
    idle = list(tidy.reaching_past_world([Source("src/wire/a.cc", "")], good))
    assert idle == ["tools/layers.toml:1: src/wire/a.cc has no <mutex> to allow"]
    bare = Table.load(allow + 'what = "<mutex>"\nreason = ""\n')
    assert list(tidy.reaching_past_world([used], bare)) == [
        "tools/layers.toml:1: src/wire/a.cc <mutex> is allowed for no reason"
    ]


def test_only_the_command_reads_the_environment() -> None:
    line = 'auto* home = std::getenv("HOME");'
    assert not list(tidy.reaching_past_world([Source("src/cli/a.cc", line)], NO_EXCEPTIONS))


def test_nothing_follows_the_order_of_a_hash_table(sources: list[Source]) -> None:
    assert_clean(list(tidy.unordered_iteration(sources)))
    header = Source("src/wire/a.h", "std::unordered_map<int, std::vector<int>> calls_;\n")
    bad = Source("src/wire/a.cc", "\nfor (auto& [id, call] : calls_) {\n}\nfor (int x : list) {}\n")
    assert list(tidy.unordered_iteration([header, bad])) == [
        "src/wire/a.cc:2: loops over the hash table calls_"
    ]


def test_marks_say_why_they_stay(sources: list[Source]) -> None:
    assert_clean(list(tidy.marks_without_reason(sources)))
    mark = "TO" + "DO"
    bad = Source("src/a.cc", f"// {mark}: do it\n// {mark}: later, because etcd 3.6 lacks it\n")
    assert list(tidy.marks_without_reason([bad])) == [f"src/a.cc:1: {mark} without 'because …'"]


def test_nothing_is_a_stub(sources: list[Source]) -> None:
    assert_clean(list(tidy.stubs(sources)))
    words = "not imple" + "mented"
    assert list(tidy.stubs([Source("src/a.cc", f"fail({words})")])) == [
        f"src/a.cc:1: '{words}' marks what is not finished"
    ]


def test_no_file_names_a_machine(sources: list[Source]) -> None:
    assert_clean(list(tidy.machine_paths(sources)))
    path = "/ho" + "me/"
    bad = Source("README.md", f"see {path}me/x\nsee docs{path}page\nsee ${{ROOT}}{path}x\n")
    assert list(tidy.machine_paths([bad])) == [
        f"README.md:1: {path} is a path of somebody's machine"
    ]


def test_the_readme_shows_the_two_commands(sources: list[Source]) -> None:
    assert_clean(list(tidy.readme_commands(sources)))
    assert list(tidy.readme_commands([Source("README.md", "make demo")])) == [
        "README.md:1: does not show 'make test'"
    ]
