"""tools/batches.py keeps apart what cannot be compiled as one, and moves no file without need."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import batches  # noqa: E402


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROOT", tmp_path)


def write(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.cc").write_text(text)
    return [folder / f"{name}.cc" for name in texts]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("struct Row {", {"Row"}),
        ("using Rows = std::map<int, Row>;", {"Rows"}),
        ("using namespace tutti;", set()),
        ("using tcp::kSmallBytes;", set()),
        ("constexpr Duration kPause = 50ms;", {"kPause"}),
        ("constexpr int kPrimes[] = {2, 3};", {"kPrimes"}),
        ("Task<Result<int>> ask(World& world) {", {"ask"}),
        ("const Row* find(int row) {", {"find"}),
        ("Row Table::find(int row) {", set()),
        ("#define WORD 1", {"WORD"}),
        ("  int inner = 0;", set()),
        ('#include "base/a.h"', set()),
    ],
)
def test_a_name_of_a_files_own_is_what_it_declares_at_the_margin(
    line: str, names: set[str], tmp_path: Path
) -> None:
    (source,) = write(tmp_path, a=f"// Why.\n{line}\n")
    assert batches.own_names(source) == names


def test_every_file_is_in_one_batch_and_no_batch_has_a_name_twice(tmp_path: Path) -> None:
    texts = {
        f"f{i}": f"constexpr int kOwn{i} = 1;\nconstexpr int kThird{i // 3} = 1;\n"
        for i in range(24)
    }
    sources = write(tmp_path, **texts)
    made = batches.batches(sources, 8)
    assert sorted(source for batch in made for source in batch) == sorted(sources)
    assert len(made) <= 4
    for batch in made:
        thirds = [int(source.stem[1:]) // 3 for source in batch]
        assert len(thirds) == len(set(thirds))


def test_a_name_of_a_files_own_is_kept_apart_from_headers_that_have_it(tmp_path: Path) -> None:
    (tmp_path / "tools.h").write_text("inline int draw(int seed) {")
    sources = write(
        tmp_path,
        a='#include "tools.h"\n',
        b="int draw(Random& random) {",
        c='#include "tools.h"\nint draw(int seed, int more) {',
    )
    made = batches.batches(sources, 8)
    assert sorted(sorted(source.stem for source in batch) for batch in made) == [["a", "c"], ["b"]]


def test_a_name_taken_from_elsewhere_is_kept_apart_from_others_that_have_it(tmp_path: Path) -> None:
    (tmp_path / "board.h").write_text("constexpr int kBytes = 1;")
    sources = write(
        tmp_path,
        a='#include "board.h"\n',
        b='#include "board.h"\nusing tcp::kBytes;',
    )
    assert len(batches.batches(sources, 8)) == 2


def test_what_includes_code_or_takes_macros_back_is_alone(tmp_path: Path) -> None:
    sources = write(tmp_path, a="", b='#include "a.cc"\n', c="#undef WORD\n", d="")
    made = batches.batches(sources, 8)
    assert sorted(sorted(source.stem for source in batch) for batch in made) == [
        ["a", "d"],
        ["b"],
        ["c"],
    ]


def test_a_new_file_leaves_the_others_where_they_are(tmp_path: Path) -> None:
    sources = write(tmp_path, **{f"f{i}": "" for i in range(15)})
    before = batches.batches(sources, 8)
    after = batches.batches([*sources, *write(tmp_path, newcomer="")], 8)
    newcomer = tmp_path / "newcomer.cc"
    assert [[source for source in batch if source != newcomer] for batch in after] == before
