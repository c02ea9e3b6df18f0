"""Values of a configuration: from text as people type it, or from TOML, checked against a type."""

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin


class Wrong(Exception):
    """What is wrong with a value."""


_TRUTH = {"true": True, "yes": True, "on": True, "1": True}
_TRUTH |= {"false": False, "no": False, "off": False, "0": False}


def type_name(kind: Any) -> str:
    """As help shows it: int, float, 'a' | 'b', list of str, int or none."""
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(str(choice) for choice in get_args(kind))
    if is_optional(kind):
        return f"{type_name(inner_of(kind))} or none"
    if origin is list:
        return f"list of {type_name(get_args(kind)[0])}"
    return "path" if kind is Path else kind.__name__


def is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def inner_of(kind: Any) -> Any:
    """T of T | None; of a choice between several types none."""
    inside = [each for each in get_args(kind) if each is not type(None)]
    return inside[0] if len(inside) == 1 else None


def is_supported(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return True
    if is_optional(kind):
        return is_supported(inner_of(kind))
    if get_origin(kind) is list:
        return is_supported(get_args(kind)[0])
    return kind in (int, float, bool, str, Path)


def from_text(kind: Any, text: str) -> Any:
    """A value as it is typed: 12, 3e-4, true, a,b,c, none."""
    if is_optional(kind):
        return None if text.lower() == "none" else from_text(inner_of(kind), text)
    if get_origin(kind) is Literal:
        for choice in get_args(kind):
            if str(choice) == text:
                return choice
        raise Wrong(f"'{text}' is none of {', '.join(map(str, get_args(kind)))}")
    if get_origin(kind) is list:
        inside = get_args(kind)[0]
        return [from_text(inside, each.strip()) for each in text.split(",")] if text else []
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise Wrong(f"'{text}' is neither true nor false")
        return _TRUTH[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            raise Wrong(f"'{text}' is not {_article(kind)}") from None
    return kind(text)


def from_value(kind: Any, value: Any) -> Any:
    """A value as TOML, JSON or a program gives it."""
    if is_optional(kind):
        return None if value is None else from_value(inner_of(kind), value)
    if get_origin(kind) is Literal:
        if any(value == choice and type(value) is type(choice) for choice in get_args(kind)):
            return value
        raise Wrong(f"{value!r} is none of {', '.join(map(str, get_args(kind)))}")
    if get_origin(kind) is list:
        if not isinstance(value, list | tuple):
            raise Wrong(f"{value!r} is not a list")
        return [from_value(get_args(kind)[0], each) for each in value]
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if type(value) is not kind:
        raise Wrong(f"{value!r} is not {_article(kind)}")
    return value


def plain(value: Any) -> Any:
    """As JSON and TOML can hold it."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _article(kind: type) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(kind, f"a {type_name(kind)}")
