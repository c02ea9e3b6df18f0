"""What a sweep is of: every combination of values for keys of a script's configuration."""

import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from tutti import _core, config
from tutti._error import Error
from tutti._script import Enough, run_until_enough
from tutti.config._fields import Key, keys_of
from tutti.config._values import inner_of, is_optional
from tutti.runs import NO_DIFFERENCE, ending_in, flat, short_names, value_text

# What others call a key, where a configuration has none that is called so.
_ALSO = {"lr": "rate", "learning_rate": "rate"}
_APART = ("config", "preset")  # no keys, and yet they say values of keys
# A grid is all in memory, and who means more has mistyped.
_MOST = 10_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
# Folders' names may have 255 bytes.
_LONGEST_NAME = 120
# They change no bits, and depend on what else runs.
_NO_PART = (*NO_DIFFERENCE, "threads")


@dataclass(frozen=True)
class Experiment:
    """One combination."""

    name: str  # of its folder: rate=0.0003,seed=1
    words: list[str]  # for the script
    config: dict[str, Any]  # all keys, without those that change nothing


@dataclass(frozen=True)
class Grid:
    experiments: list[Experiment]
    keys: list[str]  # that have several values
    has_threads: bool  # the script can be told how many; and was not
    refuses_mesh: bool


def grid_of(script: Path, options: Sequence[tuple[str, str | None]], mesh: str = "") -> Grid:
    """All that the options of a script mean together; each is checked as the script would."""
    if script.suffix != ".py" or not script.is_file():
        raise Error(
            f"{script} is no Python file; what is swept is one that calls tutti.configure, as"
            " examples/gpt.py does",
            "not_found",
        )
    found: list[Grid | Error] = []

    def look(kind: type, presets: config.Presets | None) -> None:
        # Here and not later: types that are written as text are known while the script runs.
        try:
            found.append(_grid(kind, presets, list(options), mesh))
        except Error as error:
            found.append(error)
        raise Enough

    config.show_keys = look
    try:
        run_until_enough(script, [])
    finally:
        config.show_keys = None
    if not found:
        raise Error(
            f"{script} ended without calling tutti.configure: a sweep has to know its keys",
            "invalid",
        )
    if isinstance(found[0], Error):
        raise found[0]
    return found[0]


def _grid(
    kind: type,
    presets: config.Presets | None,
    options: list[tuple[str, str | None]],
    mesh: str,
) -> Grid:
    keys = {key.name: key for key in keys_of(kind)}
    for name in ("out", "resume"):
        if name not in keys:
            raise Error(
                f"its configuration has no key {name}: let {kind.__name__} inherit tutti.Run",
                "invalid",
            )
    axes: dict[str, list[str]] = {}
    for typed, text in options:
        name = _resolved(typed, keys)
        if name in axes:
            raise Error(f"--{name} is given twice; write its values with commas between", "invalid")
        axes[name] = _values(name, text, keys.get(name))
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > _MOST:
        raise Error(f"{count:,} experiments, and a sweep has {_MOST:,} at most", "invalid")
    swept = [name for name, values in axes.items() if len(values) > 1]
    short = short_names(list(keys))
    experiments: dict[str, Experiment] = {}
    for values in itertools.product(*axes.values()):
        said = dict(zip(axes, values, strict=True))
        words = [f"--{name}={value}" for name, value in said.items()]
        extra = [f"--mesh={mesh}"] if mesh and "mesh" in keys else []
        made = flat(config.to_dict(config.parse(kind, [*words, *extra], presets=presets)))
        shown = [
            f"{short.get(name, name)}={value_text(made[name]) if name in keys else said[name]}"
            for name in swept
        ]
        name = _folder_name(shown)
        if name in experiments:
            raise Error(f"{', '.join(shown)} is there twice", "invalid")
        kept = {key: value for key, value in made.items() if key not in _NO_PART}
        experiments[name] = Experiment(name, words, kept)
    return Grid(
        list(experiments.values()),
        swept,
        has_threads="threads" in keys and "threads" not in axes,
        refuses_mesh=bool(mesh) and "mesh" not in keys,
    )


def _resolved(typed: str, keys: dict[str, Key]) -> str:
    """The key that a name means which is the end of one alone."""
    if typed in keys or typed in _APART:
        return typed
    for name in dict.fromkeys((typed, _ALSO.get(typed, typed))):
        found = ending_in(name, keys)
        if len(found) == 1:
            return found[0]
        if found:
            names = " or ".join(f"--{each}" for each in found)
            raise Error(f"--{typed} may be {names}: write which", "invalid")
    near = _core.suggest(typed, [*keys, *short_names(list(keys)).values(), *_ALSO])
    hint = f"did you mean --{near}?" if near else "`tutti train FILE --help` lists them"
    raise Error(f"there is no key {typed}; {hint}", "invalid")


def _values(name: str, text: str | None, key: Key | None) -> list[str]:
    """What stands between commas; between semicolons where a value is a list itself."""
    kind = key.kind if key is not None else str
    kind = inner_of(kind) if is_optional(kind) else kind
    if text is None:
        if kind is bool:
            return ["true"]
        raise Error(f"--{name} needs a value, or several: --{name}=…", "invalid")
    values: list[str] = []
    for part in text.split(";" if get_origin(kind) is list else ","):
        values += _range(name, part) if kind is int else [part.strip()]
    return values


def _range(name: str, part: str) -> list[str]:
    """0..3 is 0, 1, 2, 3."""
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        return [part.strip()]
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _MOST:
        raise Error(f"--{name}={part}: write a range upwards, 0..3, of up to {_MOST:,}", "invalid")
    return [str(each) for each in range(first, last + 1)]


def _folder_name(shown: Sequence[str]) -> str:
    name = ",".join(shown).replace(os.sep, "_") or "run"
    if len(name) <= _LONGEST_NAME and not name.startswith("."):
        return name
    return f"{name[:_LONGEST_NAME].lstrip('.')}…{_core.hash64(name.encode()):016x}"


def options_of(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """--key=value, --key value, and --key alone, as a configuration reads them."""
    left = list(reversed(words))
    while left:
        word = left.pop()
        if not word.startswith("--") or word == "--":
            raise Error(f"'{word}' is no option; write --key=value", "invalid")
        name, equals, value = word[2:].partition("=")
        if not equals and left and not left[-1].startswith("--"):
            value, equals = left.pop(), "="
        yield name.replace("-", "_"), value if equals else None


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Also of numbers that are none."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
