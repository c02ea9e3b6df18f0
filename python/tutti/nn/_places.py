"""Whole numbers that are known while a model is traced: positions, and what is computed of them.

So an index that no table has is told at its line, before anything is compiled. What is not known
for sure is not guessed: then the running program tells it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Known:
    """The values along a dimension of a tensor, the same wherever else; all that they come to be if
    ``dim`` is None."""

    dim: str | None
    values: range

    @property
    def least(self) -> int:
        return min(self.values)

    @property
    def most(self) -> int:
        return max(self.values)

    def times_plus(self, factor: int, more: int) -> "Known | None":
        """Of each value times a factor, plus a number."""
        values = self.values
        if factor == 0:
            return None
        start, step = values.start * factor + more, values.step * factor
        made = Known(self.dim, range(start, start + len(values) * step, step))
        # Past these i32 wraps.
        return made if made.least >= -(2**31) and made.most < 2**31 else None

    def after(self, operation: str, operands: tuple[Any, ...]) -> "Known | None":
        """What is known of the result of an operation on the tensor and these operands."""
        if operation in ("transpose", "broadcast"):
            return self
        if operation == "cast":
            return self if operands[0] in ("i32", "i64") else None
        if operation == "rename":
            before, now = operands
            return Known(now, self.values) if before == self.dim else self
        if operation == "slice":
            dim, start, size = operands
            if self.dim is None:
                return None
            return Known(dim, self.values[start : start + size]) if dim == self.dim else self
        return None


def after_number(
    known: Known | None, operation: str, number: int | float, first: bool
) -> Known | None:
    """Of arithmetic with a number, which is the ``first`` operand or the second."""
    if known is None or not isinstance(number, int):
        return None
    if operation == "add":
        return known.times_plus(1, number)
    if operation == "sub":
        return known.times_plus(-1, number) if first else known.times_plus(1, -number)
    return known.times_plus(number, 0) if operation == "mul" else None
