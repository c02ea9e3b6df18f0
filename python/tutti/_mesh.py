"""How workers are arranged: axes with names and sizes, "dp=4"."""

import math

from tutti._error import Error

# Along all of these workers share the data. They keep all of the model (dp), or each a shard of the
# moments (zero1), or of the weights and moments (fsdp).
_AXES = ("dp", "zero1", "fsdp")


def check_mesh(text: str, workers: int) -> str:
    """The axis that so many workers are arranged along; dp if the mesh does not say."""
    axes = parse_mesh(text) if text else {"dp": workers}
    if math.prod(axes.values()) != workers:
        raise Error(
            f"the mesh {text} is of {math.prod(axes.values())} workers, and there"
            f" {'is' if workers == 1 else 'are'} {workers}: start {math.prod(axes.values())} with"
            f" --workers={math.prod(axes.values())}, or change the mesh",
            "invalid",
        )
    wide = [name for name, size in axes.items() if size > 1]
    if len(wide) > 1:
        raise Error(
            f"the mesh {text} has several axes, and workers are arranged along one so far:"
            f" {wide[-1]}={workers}",
            "unsupported",
        )
    return wide[0] if wide else "dp"


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
