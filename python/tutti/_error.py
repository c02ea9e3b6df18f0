"""The exception every failure of the runtime becomes."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).parent) + "/"


class Error(Exception):
    """What went wrong outside this process, in the words of the runtime.

    ``code`` is what a program may act on: "not_found", "unavailable", "deadline", …; the text is
    for people and may change.
    """

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return self.message


Error.__module__ = "tutti"  # as it is called by who imports and sees it


def _of_the_user(traceback: TracebackType | None) -> TracebackType | None:
    """The same without frames of this package."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(traceback)
        traceback = traceback.tb_next
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _shorter(before: _Hook) -> _Hook:
    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            kept = _of_the_user(error.__traceback__)
            error.__traceback__ = traceback = kept or traceback
        before(kind, error, traceback)

    return show


def show_errors_short() -> None:
    """Of an Error that ends a program, shows the user's own lines: how this package came to say so
    is of no use to them."""
    sys.excepthook = _shorter(sys.excepthook)
