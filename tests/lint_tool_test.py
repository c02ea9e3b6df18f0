"""tools/lint.py reads files together, and misses no complaint for it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_tool", ROOT / "tools/lint.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lint = load()


class Files:
    """Sources, of which clang-tidy dislikes those that have the word bad in them."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.folder = folder
        self.looks = 0
        self.paths = [folder / f"{name}.cc" for name in texts]
        for path, text in zip(self.paths, texts.values(), strict=True):
            path.write_text(text)

    def tidy(self, source: Path, *_: str) -> str:
        self.looks += 1
        return f"{source.name} is bad" if "bad" in source.read_text() else ""

    def marked(self) -> list[str]:
        return [path.stem for path in self.paths if (self.folder / f"{path.stem}.clean").exists()]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files(tmp_path, a="int a;", b="bad", c="int c;")
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "tidy", made.tidy)
    monkeypatch.setattr(lint, "mark_of", lambda source: source.with_suffix(".clean"))
    return made


def test_a_batch_that_is_clean_is_read_once(files: Files) -> None:
    assert lint.look_at([files.paths[0], files.paths[2]]) == []
    assert files.looks == 1
    assert files.marked() == ["a", "c"]


def test_of_a_batch_that_is_not_clean_every_file_is_looked_at(files: Files) -> None:
    assert lint.look_at(files.paths) == ["b.cc is bad"]
    assert files.looks == 4
    assert files.marked() == ["a", "c"]


def test_a_file_alone_is_read_once(files: Files) -> None:
    assert lint.look_at([files.paths[1]]) == ["b.cc is bad"]
    assert files.looks == 1


def test_what_is_compiled_for_other_processors_goes_alone(tmp_path: Path) -> None:
    names = ["src/base/a.cc", "src/base/b.cc", "src/base/hash_avx2.cc", "src/base/x_targets.cc"]
    sources = [ROOT / name for name in names if (ROOT / name).exists()]
    sources += [
        ROOT / "src/base/hash_avx2.cc",
        ROOT / "src/base/units.cc",
        ROOT / "src/base/log.cc",
    ]
    made = lint.in_batches(sorted(set(sources)))
    assert [ROOT / "src/base/hash_avx2.cc"] in made
    assert sorted(path for batch in made for path in batch) == sorted(set(sources))
