"""Checks the sources: clang-format, clang-tidy, ruff. `--fix` rewrites what can be rewritten.

clang-tidy runs on every C++ source but the tests, and remembers the clean ones: a file is checked
again when it, a header it includes, the checks, the flags or clang-tidy itself changed. Most of its
time goes into headers, so files are read together, in batches; those of a batch that is not clean
are looked at again one by one.
"""

import argparse
import functools
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from batches import batches

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CLEAN = ROOT / "build/lint"
JOBS = os.cpu_count() or 1
BATCH = 10  # of more, the memory grows and the time does not fall
ALONE = re.compile(r"_(sse2|avx2|avx512|targets)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
INCLUDE_ROOTS = (ROOT / "src", ROOT / "include", ROOT)


def tracked(*patterns: str) -> list[Path]:
    """Files git knows or would add: what is ignored is not ours to check."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--deduplicate", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [ROOT / name for name in sorted(listed) if (ROOT / name).is_file()]


def run(*command: str | Path) -> bool:
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT).returncode == 0


def check_format(fix: bool) -> bool:
    files = tracked("*.cc", "*.c", "*.h", "*.inc")
    if fix:
        return run(BIN / "clang-format", "-i", *files)
    done = subprocess.run(
        [BIN / "clang-format", "--dry-run", "-Werror", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    # Its own report repeats every line; the first place in each file is enough.
    first_places = dict(re.findall(r"^(\S+?):(\d+):\d+: error", done.stderr, re.MULTILINE)[::-1])
    for name, line in sorted(first_places.items()):
        print(f"{Path(name).relative_to(ROOT)}:{line}: not in the house format; run: make format")
    if done.returncode != 0 and not first_places:
        print(done.stderr)
    return done.returncode == 0


def check_python(fix: bool) -> bool:
    if fix:
        return run(BIN / "ruff", "check", "--fix", "--quiet") and run(
            BIN / "ruff", "format", "--quiet"
        )
    checked = run(BIN / "ruff", "check", "--quiet")
    return run(BIN / "ruff", "format", "--check", "--quiet") and checked


@functools.cache
def project_includes(path: Path) -> frozenset[Path]:
    """The headers of this repository that a file names itself."""
    named = INCLUDE.findall(path.read_text())
    candidates = (root / name for name in named for root in INCLUDE_ROOTS)
    return frozenset(candidate for candidate in candidates if candidate.is_file())


def everything_read_by(source: Path) -> list[Path]:
    seen = {source}
    waiting = [source]
    while waiting:
        new = project_includes(waiting.pop()) - seen
        seen |= new
        waiting += new
    return sorted(seen)


@functools.cache
def digest_of(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def flags() -> tuple[str, ...]:
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--include_dir"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return (
        "-std=c++23",
        "-Wall",
        "-Wextra",
        "-Wno-missing-field-initializers",
        "-Wno-unknown-warning-option",
        f"-I{ROOT / 'src'}",
        f"-I{ROOT / 'include'}",
        f"-I{ROOT}",
        f"-isystem{ROOT / 'build/release/generated'}",
        f"-isystem{nanobind}",
        f"-isystem{sysconfig.get_path('include')}",
    )


@functools.cache
def version() -> bytes:
    return subprocess.run([BIN / "clang-tidy", "--version"], check=True, capture_output=True).stdout


def mark_of(source: Path) -> Path:
    """Where it is noted that this file, as it is, was clean."""
    key = hashlib.sha256(version() + digest_of(ROOT / ".clang-tidy") + " ".join(flags()).encode())
    for path in everything_read_by(source):
        key.update(digest_of(path))
    return CLEAN / key.hexdigest()


def tidy(source: Path, *more_flags: str | Path) -> str:
    """The complaints about one file."""
    done = subprocess.run(
        [BIN / "clang-tidy", "--quiet", source, "--", *flags(), *more_flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return "" if done.returncode == 0 else done.stdout.strip() or done.stderr


def tidy_together(sources: list[Path]) -> bool:
    """Whether all are clean, one after the other in one text."""
    with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=ROOT / "build") as together:
        for source in sources:
            together.write(f'#line 1 "{source}"\n{source.read_text()}\n')
        together.flush()
        folders = (f"-I{folder}" for folder in sorted({source.parent for source in sources}))
        return not tidy(Path(together.name), *folders)


def look_at(batch: list[Path]) -> list[str]:
    """The complaints about each; none leaves a mark."""
    together = len(batch) > 1 and tidy_together(batch)
    complaints = []
    for source in batch:
        extra = ("-mavx2",) if source.stem.endswith("_avx2") else ()
        complaint = "" if together else tidy(source, *extra)
        if complaint:
            complaints.append(complaint)
        else:
            mark_of(source).touch()
    return complaints


def in_batches(sources: list[Path]) -> list[list[Path]]:
    """Neighbours share most headers. What has flags or macros of its own goes alone."""
    alone = [source for source in sources if ALONE.search(source.stem)]
    folders: dict[Path, list[Path]] = {}
    for source in sources:
        if source not in alone:
            folders.setdefault(source.parent, []).append(source)
    together = [batch for folder in folders.values() for batch in batches(folder, BATCH)]
    return [*together, *([source] for source in alone)]


def check_tidy() -> bool:
    CLEAN.mkdir(parents=True, exist_ok=True)
    if tracked("src/*.proto") and not run("tools/build", "release", "protos"):
        return False
    sources = [
        path
        for path in tracked("src/*.cc", "sims/*.cc", "python/*.cc")
        if not path.stem.endswith(("_test", "_fuzz"))
    ]
    stale = [source for source in sources if not mark_of(source).exists()]
    complaints: set[str] = set()
    with ThreadPoolExecutor(JOBS) as pool:
        for outputs in pool.map(look_at, in_batches(stale)):
            for output in outputs:
                if output not in complaints:
                    print(output, flush=True)
                    complaints.add(output)
    print(f"clang-tidy: {len(stale)} of {len(sources)} files looked at again")
    return not complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="rewrite instead of complaining")
    fix = parser.parse_args().fix
    start = time.monotonic()
    good = [check_format(fix), check_python(fix)]
    if not fix:
        good.append(check_tidy())
    seconds = time.monotonic() - start
    print(f"lint: {'clean' if all(good) else 'not clean'} in {seconds:.1f} s")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
