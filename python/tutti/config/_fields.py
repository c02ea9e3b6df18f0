"""The keys of a configuration: what a dataclass of dataclasses has, with dots between names."""

import dataclasses
import inspect
import io
import tokenize
import typing
from dataclasses import MISSING, dataclass
from typing import Any

from tutti._error import Error
from tutti.config._values import is_supported


@dataclass(frozen=True)
class Key:
    """One value of the configuration."""

    name: str  # "model.layers"
    kind: Any
    default: Any  # or MISSING
    comment: str


def keys_of(kind: type, prefix: str = "", base: Any = MISSING) -> list[Key]:
    """Every key of a dataclass and those within it, in order. ``base`` has values for those that
    the outer class gives to the inner one."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise Error(f"{getattr(kind, '__name__', kind)!r} is not a dataclass", "invalid")
    hints = typing.get_type_hints(kind)
    comments = {
        key: text for each in reversed(kind.__mro__) for key, text in _comments(each).items()
    }
    keys: list[Key] = []
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        name, hint = prefix + field.name, hints[field.name]
        default = _default(field) if base is MISSING else getattr(base, field.name)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            keys += keys_of(hint, f"{name}.", default)
        elif is_supported(hint):
            keys.append(Key(name, hint, default, comments.get(field.name, "")))
        else:
            raise Error(
                f"{kind.__name__}.{field.name} is of type {hint}: a configuration holds int, float,"
                " bool, str, Path, Literal, lists and dataclasses of these, or none",
                "invalid",
            )
    return keys


def build(kind: type, values: dict[str, Any], prefix: str = "") -> Any:
    """An instance with these values, by key."""
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            given[field.name] = build(hint, values, f"{prefix}{field.name}.")
        else:
            given[field.name] = values[prefix + field.name]
    return kind(**given)


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _comments(kind: type) -> dict[str, str]:
    """What stands after # in the line of a field, or alone in the lines above it."""
    if not dataclasses.is_dataclass(kind):
        return {}
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        return {}
    names = {field.name for field in dataclasses.fields(kind)}
    found: dict[str, str] = {}
    above: list[str] = []
    first = True  # of its line
    name = ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("# ")
            if first:
                above.append(text)
            elif name:
                found[name] = text
        elif token.type == tokenize.NAME and first:
            name = token.string if token.string in names and token.start[1] == 4 else ""
            if name and above:
                found[name] = " ".join(above)
            above = []
            first = False
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            first = True
            if token.type == tokenize.NEWLINE:
                name = ""
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT):
            first = False
    return found
