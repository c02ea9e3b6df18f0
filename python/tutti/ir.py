"""What becomes of a model on its way to a program: `tutti ir` on the command line.

FILE is a Python script that makes a tutti.Trainer, whose step is looked at before anything is
compiled, or a graph's text. docs/compiler.md walks a small model through it.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tutti import _core
from tutti._error import Error
from tutti._script import Enough, run_until_enough

__all__ = ["main"]

_TRACED = "traced"  # before the first pass
_SHARD = "shard"  # with a mesh only, before the others
_UNUSED = "remove-unused"  # after which it is known what rounds keep for their gradients
_AGAIN = "rematerialise"  # with a budget only


def _step_of(script: Path, arguments: list[str]) -> _core.Graph:
    from tutti import trainer

    found: list[_core.Graph] = []

    def capture(graph: _core.Graph) -> None:
        found.append(graph)
        raise Enough

    trainer.show_step = capture
    run_until_enough(script, arguments)
    if found:
        return found[0]
    raise Error(f"{script} ended without making a tutti.Trainer", "invalid")


def _graph_of(path: Path, arguments: list[str]) -> _core.Graph:
    if path.suffix == ".py":
        return _step_of(path, arguments)
    try:
        return _core.Graph.parse(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"cannot read {path}: {error}", "not_found") from None


def _names(known: argparse.Namespace) -> list[str]:
    names = [_TRACED, *_core.passes(), *_core.program_steps()]
    if known.mesh is not None:
        names.insert(1, _SHARD)
    if known.scratch is not None:
        names.insert(names.index(_UNUSED) + 1, _AGAIN)
    return names


def _after(graph: _core.Graph, name: str, known: argparse.Namespace) -> str:
    names, scratch = _names(known), known.scratch
    if known.mesh is not None and name != _TRACED:
        sharded = _core.Sharded(graph, known.mesh, known.rules or "", known.reshard_limit)
        if name == _SHARD:
            return sharded.text(known.rank)
        graph = sharded.graph(known.rank)
    if scratch is not None and names.index(name) >= names.index(_AGAIN):
        graph = graph.rematerialise(scratch)
    if name in (_TRACED, _AGAIN):
        return graph.text()
    if name in _core.program_steps():
        return _core.program_text(graph.optimize(), name)
    return graph.optimize(name).text()


def _checked(name: str, names: list[str]) -> str:
    if name in names:
        return name
    near = _core.suggest(name, names)
    hint = f"; did you mean {near}?" if near else "."
    raise Error(f"there is no pass {name}{hint} They are: {', '.join(names)}", "invalid")


def _arguments(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="tutti ir", add_help=False, allow_abbrev=False)
    parser.add_argument("--after", action="append", default=[])
    parser.add_argument("--program", action="store_true")
    parser.add_argument("--scratch")
    parser.add_argument("--mesh")
    parser.add_argument("--rules")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--reshard-limit")
    parser.add_argument("file", type=Path, nargs="?")
    # Ours come before the file or behind it; what we do not know is the script's.
    known, rest = parser.parse_known_args(words)
    if rest and (known.file is None or known.file.suffix != ".py"):
        raise Error(f"there is no option {rest[0]} for a graph's text", "invalid")
    for option in ("rules", "rank", "reshard_limit"):
        if known.mesh is None and getattr(known, option) is not None:
            name = option.replace("_", "-")
            raise Error(f"--{name} is of a mesh: give --mesh=dp=2,tp=2 as well", "invalid")
    return known, rest


_NUMBERS = re.compile(r"%\d+")


def _difference(before: str, after: str, names: list[str]) -> Iterator[str]:
    """A unified diff to which lines are the same that differ in the numbers of values only."""
    olds, news = before.splitlines(keepends=True), after.splitlines(keepends=True)
    plain = [[_NUMBERS.sub("%", line) for line in lines] for lines in (olds, news)]
    groups = difflib.SequenceMatcher(None, *plain, autojunk=False).get_grouped_opcodes()
    yield f"--- {names[0]}\n+++ {names[1]}\n"
    for group in groups:
        first, last = group[0], group[-1]
        yield (f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@\n")
        for kind, old, old_end, new, new_end in group:
            if kind == "equal":
                yield from (f" {line}" for line in news[new:new_end])
            else:
                yield from (f"-{line}" for line in olds[old:old_end])
                yield from (f"+{line}" for line in news[new:new_end])


def _run(words: list[str]) -> None:
    known, rest = _arguments(words)
    names = _names(known)
    if known.file is None:
        print("\n".join(names))
        return
    wanted = [_checked(name, names) for name in known.after]
    graph = _graph_of(known.file, rest)
    if known.program:
        wanted = names[-1:]
    if len(wanted) == 2:
        before, after = (_after(graph, name, known) for name in wanted)
        sys.stdout.writelines(_difference(before, after, wanted))
    elif len(wanted) <= 1:
        shown = wanted[0] if wanted else _core.passes()[-1]
        print(_after(graph, shown, known), end="")
    else:
        raise Error("--after can be given once, or twice for the difference", "invalid")


def main() -> int:
    try:
        _run(sys.argv[1:])
    except Error as error:
        print(f"tutti ir: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads any more
    return 0


if __name__ == "__main__":
    sys.exit(main())
