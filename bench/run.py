"""Measures this project beside its peers.

    python bench/run.py [NAME…] [--quick] [--json]

Each bench/bench_<name>.py is one claim. People get a table; --json gives one object per line with
the keys bench, case, unit, ours, peer, theirs, ratio, spread, and note where there is something to
say. A ratio above 1 means that this project is better.
"""

import argparse
import importlib.util
import json
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from common import Case, progress  # noqa: E402


def discover(folder: Path) -> dict[str, Path]:
    return {path.stem.removeprefix("bench_"): path for path in sorted(folder.glob("bench_*.py"))}


def cases_of(path: Path, quick: bool) -> Iterator[Case]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield from module.run(quick)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def row(bench: str, case: Case) -> str:
    ratio = "-" if case.ratio is None else f"{case.ratio:.2f}x"
    cells = (
        f"{bench:<12} {case.case:<36} {number(case.ours):>10} {number(case.theirs):>10} "
        f"{case.unit:<8} {ratio:>8} ±{case.spread:>4.0%}  {case.peer}"
    )
    return f"{cells} ({case.note})" if case.note else cells


HEADING = (
    f"{'bench':<12} {'case':<36} {'ours':>10} {'theirs':>10} {'unit':<8} {'ratio':>8} "
    f"{'':>5}  peer (above 1x: we are better)"
)


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description="Measures this project beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all without any")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    options = parser.parse_args(arguments)

    benches = discover(folder)
    if unknown := [name for name in options.names if name not in benches]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(benches)}")
    if not options.json:
        print(HEADING)
    failed = []
    for name in options.names or benches:
        try:
            for case in cases_of(benches[name], options.quick):
                text = json.dumps(case.as_json(name)) if options.json else row(name, case)
                print(text, flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(name)
    if failed:
        progress(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    # As Ctrl-C does: peers that were started in the background are ended on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
