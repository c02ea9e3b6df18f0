"""How workers are arranged: axes with names and sizes, "dp=4"."""

import math

from tutti._error import Error

# Along these all workers have all of the model, and share the data.
_AXES = ("dp",)


def check_mesh(text: str, workers: int) -> dict[str, int]:
    """The axes of a mesh of so many workers; all of them share the data if it says nothing."""
    axes = parse_mesh(text) if text else {"dp": workers}
    if math.prod(axes.values()) != workers:
        raise Error(
            f"the mesh {text} is of {math.prod(axes.values())} workers, and there"
            f" {'is' if workers == 1 else 'are'} {workers}: start {math.prod(axes.values())} with"
            f" --workers={math.prod(axes.values())}, or change the mesh",
            "invalid",
        )
    return axes


def parse_mesh(text: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.partition("=")
        if not equals or not size.isdecimal() or int(size) < 1:
            raise Error(f"mesh {text}: write its axes and their sizes: dp=4", "invalid")
        if name in axes:
            raise Error(f"mesh {text}: {name} is there twice", "invalid")
        if name not in _AXES:
            raise Error(
                f"mesh {text}: there is no axis {name!r}; there is {', '.join(_AXES)}", "invalid"
            )
        axes[name] = int(size)
    return axes
