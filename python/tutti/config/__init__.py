"""Typed configuration: dataclasses, filled from the command line, files and presets.

    @dataclass
    class Model:
        layers: int = 12  # how deep it is

    @dataclass
    class Config:
        model: Model = field(default_factory=Model)
        rate: float = 3e-4

    config = tutti.configure(Config)    # python train.py --model.layers=24 --config=big.toml

Types are checked, keys that do not exist are refused, and --help shows all there are.
"""

import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from tutti import _core
from tutti._error import Error
from tutti.config._fields import Key, build, keys_of
from tutti.config._values import Wrong, from_text, from_value, plain, type_name

__all__ = ["configure", "from_dict", "load", "parse", "save", "to_dict", "to_toml"]

Config = TypeVar("Config")
Presets = Mapping[str, Mapping[str, Any]]

# Is shown what configure() is asked for before it reads the command line; for `tutti sweep`.
show_keys: Callable[[type, Presets | None], None] | None = None


def configure(kind: type[Config], *, presets: Presets | None = None) -> Config:
    """The configuration that the command line asks for.

    Of what is given several times the last in this order counts: defaults, ``--preset``, files
    (``--config``), other options. Ends the program with words when something is wrong, and after
    ``--help``.
    """
    if show_keys is not None:
        show_keys(kind, presets)
    program = Path(sys.argv[0]).name or "python"
    if any(word in ("--help", "-h") for word in sys.argv[1:]):
        print(help_text(kind, program, presets))
        raise SystemExit(0)
    try:
        return parse(kind, sys.argv[1:], presets=presets)
    except Error as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def parse(kind: type[Config], words: Sequence[str], *, presets: Presets | None = None) -> Config:
    """The same of these words; raises tutti.Error, with all that is wrong."""
    return _Reader(kind).read(list(words), presets or {})


def from_dict(kind: type[Config], values: Mapping[str, Any], where: str = "") -> Config:
    """A configuration out of nested dictionaries; ``where`` is what errors call them."""
    reader = _Reader(kind)
    reader.take_mapping(values, where)
    return reader.result()


def to_dict(config: Any) -> dict[str, Any]:
    """Every value, resolved, as nested dictionaries that JSON can hold."""
    nested: dict[str, Any] = {}
    for key in keys_of(type(config)):
        *path, last = key.name.split(".")
        place, value = nested, config
        for name in path:
            place = place.setdefault(name, {})
            value = getattr(value, name)
        place[last] = plain(getattr(value, last))
    return nested


def to_toml(config: Any) -> str:
    """The same as a TOML file with its comments; what is none is left out."""
    comments = {key.name: key.comment for key in keys_of(type(config))}
    lines: list[str] = []

    def write(values: dict[str, Any], path: str) -> None:
        tables = {name: each for name, each in values.items() if isinstance(each, dict)}
        for name, each in values.items():
            if each is None or name in tables:
                continue
            comment = comments.get(f"{path}{name}", "")
            lines.append(f"{name} = {_toml(each)}" + (f"  # {comment}" if comment else ""))
        for name, each in tables.items():
            lines.extend(["", f"[{path}{name}]"] if lines else [f"[{path}{name}]"])
            write(each, f"{path}{name}.")

    write(to_dict(config), "")
    return "\n".join(lines) + "\n"


def load(kind: type[Config], path: str | os.PathLike[str]) -> Config:
    """A configuration that save() wrote, or a person: TOML, or JSON if the name ends so."""
    return from_dict(kind, _read_file(Path(path)), str(path))


def save(config: Any, path: str | os.PathLike[str]) -> None:
    """Writes it as TOML, or as JSON if the name ends so."""
    file = Path(path)
    text = json.dumps(to_dict(config), indent=2) + "\n" if file.suffix == ".json" else None
    file.write_text(to_toml(config) if text is None else text)


def help_text(kind: type, program: str = "program", presets: Presets | None = None) -> str:
    """Every key with its type, default and comment."""
    rows = [("--config=FILE", "", "keys from a TOML or JSON file")]
    if presets:
        rows.append(("--preset=NAME", "", ", ".join(presets)))
    for key in keys_of(kind):
        default = "(required)" if key.default is MISSING else f"= {_shown(key.default)}"
        rows.append((f"--{key.name}", f"{type_name(key.kind)} {default}", key.comment))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"usage: {program} [--KEY=VALUE …]", ""]
    group = ""
    for name, what, comment in rows:
        if (new := name.rpartition(".")[0]) != group:
            group = new
            lines.append("")
        lines.append(f"  {name:{widths[0]}}  {what:{widths[1]}}  {comment}".rstrip())
    return "\n".join(lines)


def _shown(value: Any) -> str:
    """As it is typed."""
    if isinstance(value, list):
        return ",".join(map(_shown, value)) or "empty"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return str(value)  # inf and nan as well
    return json.dumps(value, ensure_ascii=False)  # text as TOML has it too


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise Error(f"{path}: {error.strerror}", "not_found") from None
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise Error(f"{path}: {error}", "invalid") from None
    if not isinstance(values, dict):
        raise Error(f"{path}: holds {type(values).__name__}, not keys and values", "invalid")
    return values


class _Reader:
    """Gathers values for the keys of a class, and what is wrong with them."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.keys: dict[str, Key] = {key.name: key for key in keys_of(kind)}
        self.groups = {name[:at] for name in self.keys for at, c in enumerate(name) if c == "."}
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []

    def read(self, words: list[str], presets: Presets) -> Any:
        options = self._options(words)
        for name, value in options:
            if name == "preset" and name not in self.keys:
                self._take_preset(value or "", presets)
        for name, value in options:
            if name == "config" and name not in self.keys:
                try:
                    self.take_mapping(_read_file(Path(value or "")), value or "")
                except Error as error:
                    self.mistakes.append(error.message)
        for name, value in options:
            if name in self.keys or name not in ("config", "preset"):
                self._take_option(name, value)
        return self.result()

    def take_mapping(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        before = f"{where}: " if where else ""
        for name, value in values.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping) and key in self.groups:
                self.take_mapping(value, where, f"{key}.")
            elif key in self.keys:
                self._take(key, before, lambda kind, each=value: from_value(kind, each))
            elif key in self.groups:
                self.mistakes.append(f"{before}{self._group(key)}: write [{key}] and those below")
            else:
                self.mistakes.append(f"{before}there is no key {key}{self._near(key)}")

    def result(self) -> Any:
        for key in self.keys.values():
            if key.name not in self.values and not self.mistakes:
                if key.default is MISSING:
                    self.mistakes.append(f"--{key.name} ({type_name(key.kind)}) has to be given")
                self.values[key.name] = key.default
        if not self.mistakes:
            try:
                return build(self.kind, self.values)
            except ValueError as error:  # of somebody's __post_init__
                self.mistakes.append(str(error))
        raise Error("\n  ".join(self.mistakes), "invalid")

    def _options(self, words: list[str]) -> list[tuple[str, str | None]]:
        """--key=value, --key value, and --key of what is true or false."""
        options: list[tuple[str, str | None]] = []
        left = list(reversed(words))
        while left:
            word = left.pop()
            if not word.startswith("--"):
                self.mistakes.append(f"'{word}' is no option; write --key=value")
                continue
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if equals:
                options.append((name, value))
            elif name in self.keys and self.keys[name].kind is bool:
                options.append((name, "true"))
            elif left and not left[-1].startswith("--"):
                options.append((name, left.pop()))
            else:
                options.append((name, None))
        return options

    def _take_preset(self, name: str, presets: Presets) -> None:
        if name not in presets:
            near = _core.suggest(name, list(presets))
            hint = f"did you mean {near}?" if near else f"there are {', '.join(presets) or 'none'}"
            self.mistakes.append(f"there is no preset {name}; {hint}")
            return
        for key, value in presets[name].items():
            if key in self.keys:
                self._take(key, f"preset {name}: ", lambda kind, v=value: from_value(kind, v))
            else:
                self.mistakes.append(f"preset {name}: there is no key {key}{self._near(key)}")

    def _take_option(self, name: str, value: str | None) -> None:
        if name not in self.keys:
            inside = " has keys of its own, and" if name in self.groups else ""
            hint = f"; {name}{inside} takes no value" if inside else self._near(name, "--")
            self.mistakes.append(f"there is no option --{name}{hint}")
        elif value is None:
            kind = type_name(self.keys[name].kind)
            self.mistakes.append(f"--{name} needs a value ({kind}): --{name}=…")
        else:
            self._take(name, "", lambda kind: from_text(kind, value), "--")

    def _take(self, name: str, before: str, read: Any, dashes: str = "") -> None:
        key = self.keys[name]
        try:
            self.values[name] = read(key.kind)
        except Wrong as wrong:
            self.mistakes.append(f"{before}{dashes}{name}: {wrong} ({type_name(key.kind)})")

    def _group(self, name: str) -> str:
        inside = [key.removeprefix(f"{name}.") for key in self.keys if key.startswith(f"{name}.")]
        some = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
        return f"{name} takes no value, it has keys of its own ({some})"

    def _near(self, name: str, dashes: str = "") -> str:
        near = [key for key in self.keys if key.endswith(f".{name}")][:3]
        if not near and (one := _core.suggest(name, list(self.keys))):
            near = [one]
        words = " or ".join(f"{dashes}{each}" for each in near)
        return f"; did you mean {words}?" if near else "; --help lists them"
