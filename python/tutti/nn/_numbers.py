"""Python's numbers beside tensors: what a tensor's kind of number cannot hold is refused.

A kind never changes by itself. Where NumPy would make floating point of whole numbers, the model
has to say so: x.cast("f32") * 0.5. What would be cut, wrapped or infinite is told at its line.
"""

import math
import operator
from typing import Any

from tutti.nn._trace import refuse

Number = int | float

_WHOLE = {
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u32": (0, 2**32 - 1),
    "u8": (0, 2**8 - 1),
}
# From here on rounding to the nearest gives infinity.
_INFINITE = {
    "f32": 2.0**128 * (1 - 2.0**-25),
    "bf16": 2.0**128 * (1 - 2.0**-9),
    "f16": 2.0**16 * (1 - 2.0**-12),
}


def is_whole(dtype: str) -> bool:
    """Whether it is a kind of whole numbers."""
    return dtype in _WHOLE


def number_of(value: Any) -> Number | None:
    """What Python or a scalar of NumPy gives as a number; None of anything else. Arrays have no
    place in a graph."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, int | float) else None


def kind_of(value: Any) -> str:
    """What a value is, in words for its mistake."""
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return f"{kind} of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else kind


def sizes_of(what: str, dims: dict[str, Any]) -> dict[str, int]:
    """Sizes as whole numbers from 1 on; refuses others, as those of ``what``."""
    return {name: _size(what, name, size) for name, size in dims.items()}


def _size(what: str, name: str, size: Any) -> int:
    try:
        whole = 0 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        whole = 0
    if whole < 1:
        refuse(f"{what} dimension {name} is {size!r}; a size is a whole number from 1")
    return whole


def as_constant(value: Number, dtype: str, doing: str) -> float:
    """The number as a constant of the graph. ``doing`` is the operation with its other operands:
    "mul: i32[time=5]"."""
    if dtype == "bool":
        if not isinstance(value, bool):
            refuse(f"{doing} and {value!r}: beside truths there are only True and False")
        return float(value)
    if dtype in _WHOLE:
        return _whole(value, dtype, doing)
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    was_finite = isinstance(value, int) or math.isfinite(value)
    if was_finite and abs(made) >= _INFINITE.get(dtype, math.inf):
        refuse(f"{doing} and {_shown(value)}, which is too large for {dtype}: it would be infinite")
    return made


def _whole(value: Number, dtype: str, doing: str) -> float:
    if isinstance(value, float):
        refuse(
            f'{doing} and {value!r}: {dtype} has no fractions; cast the tensor (x.cast("f32")), or'
            " give a whole number, without a point"
        )
    least, most = _WHOLE[dtype]
    if not least <= value <= most:
        refuse(f"{doing} and {_shown(value)}: {dtype} has numbers from {least} to {most} only")
    # The graph keeps constants as f64.
    if int(float(value)) != value:
        refuse(
            f"{doing} and {value}: whole constants past 2^53 are kept exactly only when f64 has"
            " them; give it to the model as an input"
        )
    return float(value)


def _shown(value: Number) -> str:
    """Without its hundreds of digits."""
    text = repr(value)
    return text if len(text) <= 24 else f"{text[:12]}… ({len(text)} digits)"
