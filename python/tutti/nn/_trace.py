"""The trace that is under way, and the user's line that an operation is made for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tutti import _core
from tutti._error import Error

if TYPE_CHECKING:
    from tutti.nn._module import Parameter


def user_line() -> str:
    """Where the user's code is now: "gpt.py:41", of the first frame outside of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<frozen")):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


# As frames name it, whatever links led here.
_PACKAGE = str(Path(user_line.__code__.co_filename).parent.parent) + "/"


def refuse(message: str, where: str | None = None) -> NoReturn:
    """Raises what is wrong with a model, with the user's line before it."""
    where = user_line() if where is None else where
    raise Error(f"{where}: {message}" if where else message, "invalid") from None


class Trace:
    """A model while its code runs once: parameters by name, operations into a C++ builder."""

    def __init__(self, name: str, use: str, seed: int) -> None:
        self.builder = _core.ModelBuilder(name, use, seed)
        self.use = use
        self.places: int | None = None  # of caches, when sequences come piece by piece
        self.names: dict[int, str] = {}  # of parameters, by identity
        self.paths: dict[int, str] = {}  # of modules

    def make(self, operation: str, *operands: Any) -> _core.Tensor:
        """One operation, for the user's line."""
        where = user_line()
        self.builder.at(where)
        made: Callable[..., _core.Tensor] = getattr(self.builder, operation)
        try:
            return made(*operands)
        except Error as error:
            # What the graph refuses names the line already.
            if error.message.startswith(where):
                raise
            refuse(error.message, where)
        except TypeError:
            # What nanobind says is about C++.
            given = ", ".join(_operand(each) for each in operands)
            refuse(
                f"{operation}: ({given}) is not what it takes: names are text, sizes and places"
                " whole numbers, operands tensors",
                where,
            )

    def weight(self, parameter: "Parameter") -> _core.Tensor:
        name = self.names.get(id(parameter))
        if name is None:
            refuse(
                f"{parameter!r}, made at {parameter.made_at}, is no part of the model: assign it,"
                " or the module that has it, to an attribute (self.x = …) of a module of the model"
            )
        return self.make("weight", name)


def _operand(value: Any) -> str:
    return value.text() if isinstance(value, _core.Tensor) else repr(value)


_current: list[Trace] = []


def current(doing: str) -> Trace:
    """The trace under way; raises when there is none."""
    if not _current:
        refuse(
            f"{doing} outside of a trace: a model's code runs within nn.trace(model, …),"
            " which calls it once"
        )
    return _current[-1]


def is_under_way() -> bool:
    return bool(_current)


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    _current.append(trace)
    try:
        yield
    finally:
        _current.pop()
