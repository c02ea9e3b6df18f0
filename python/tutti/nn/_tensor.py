"""Tensors with named dimensions: what a model's code computes with while it is traced."""

import math
from abc import ABC, abstractmethod
from typing import Any, NoReturn, Union

from tutti import _core
from tutti.nn._numbers import Number, as_constant, is_whole, kind_of, number_of, sizes_of
from tutti.nn._places import Known, after_number
from tutti.nn._trace import Trace, current, refuse

Operand = Union["Value", Number]


# What people of other frameworks ask a tensor for, and what has it here.
_INSTEAD_OF = {
    "shape": 'x.dims for names and sizes, x.size("name") for one',
    "ndim": "len(x.dims)",
    "dim": "len(x.dims)",
    "T": 'x.transpose("second", "first"), by name',
    "permute": 'x.transpose("second", "first"), by name',
    "view": "x.split(…) or x.merge(…)",
    "reshape": "x.split(…) or x.merge(…)",
    "astype": 'x.cast("f32")',
    "to": 'x.cast("f32")',
    "float": 'x.cast("f32")',
    "item": "the value that the model returns, once it has run",
}


def dims_text(dims: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())


class Value(ABC):
    """What can be computed with: a tensor, or a parameter, which becomes one where it is used.

    Operands are matched by the names of their dimensions; what one has not, it is repeated along.
    """

    __slots__ = ()
    __array_priority__ = 1000  # NumPy's scalars leave operators to us

    @abstractmethod
    def _tensor(self) -> "Tensor": ...

    @property
    def dims(self) -> dict[str, int]:
        """Names and sizes, in the order in which they lie in memory."""
        return dict(self._tensor()._handle.dims)

    @property
    def dtype(self) -> str:
        return self._tensor()._handle.dtype

    def size(self, dim: str) -> int:
        """The size of the dimension of this name."""
        dims = self.dims
        if dim not in dims:
            refuse(f"{self._tensor().text} has no dimension {dim}{_near(dim, dims)}")
        return dims[dim]

    # Arithmetic.
    def __add__(self, other: Operand) -> "Tensor":
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> "Tensor":
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> "Tensor":
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> "Tensor":
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> "Tensor":
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> "Tensor":
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> "Tensor":
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> "Tensor":
        return binary("div", other, self)

    def __floordiv__(self, other: Operand) -> "Tensor":
        """The whole part below: -7 // 2 is -4. Of floating point it is that of a / b as rounded;
        whole numbers are divided by numbers only."""
        return _floor_divide(self, other)[0]

    def __rfloordiv__(self, other: Operand) -> "Tensor":
        return _floor_divide(other, self)[0]

    def __mod__(self, other: Operand) -> "Tensor":
        """What a // b leaves: a - a // b * b, which has the sign of b."""
        return _floor_divide(self, other)[1]

    def __rmod__(self, other: Operand) -> "Tensor":
        return _floor_divide(other, self)[1]

    def __pow__(self, other: Operand) -> "Tensor":
        return binary("pow", self, other)

    def __neg__(self) -> "Tensor":
        return unary("neg", self)

    def __abs__(self) -> "Tensor":
        return unary("abs", self)

    def __matmul__(self, other: "Value") -> "Tensor":
        """Summed over every name that both have."""
        if not isinstance(other, Value):
            return NotImplemented
        over = [name for name in self.dims if name in other.dims]
        if not over:
            refuse(
                f"matmul: {self._tensor().text} and {other._tensor().text} have no name in common"
                " to be summed over"
            )
        return self.dot(other, over=over)

    def dot(self, other: "Value", over: str | list[str]) -> "Tensor":
        """The product summed over these names; other names in both are kept, and matched."""
        names = [over] if isinstance(over, str) else list(over)
        a, b = _pair("matmul", self, other)
        return a._make("matmul", a._handle, b._handle, names)

    # Comparisons, element by element; == and != stay those of Python's objects.
    def __lt__(self, other: Operand) -> "Tensor":
        return binary("less", self, other)

    def __le__(self, other: Operand) -> "Tensor":
        return binary("less_equal", self, other)

    def __gt__(self, other: Operand) -> "Tensor":
        return binary("less", other, self)

    def __ge__(self, other: Operand) -> "Tensor":
        return binary("less_equal", other, self)

    def equal(self, other: Operand) -> "Tensor":
        return binary("equal", self, other)

    def __invert__(self) -> "Tensor":
        return unary("not", self)

    def __and__(self, other: Operand) -> "Tensor":
        return binary("and", self, other)

    def __or__(self, other: Operand) -> "Tensor":
        return binary("or", self, other)

    # Shapes.
    def rename(self, **names: str) -> "Tensor":
        """x.rename(time="keys")"""
        x = self._tensor()
        for name, new in names.items():
            x.size(name)
            x = x._make("rename", x._handle, name, new)
        return x

    def split(self, dim: str, **parts: int) -> "Tensor":
        """One dimension as several, the last of which varies fastest: x.split("qkv", heads=6,
        head=-1), where -1 is what is left."""
        x = self._tensor()
        size = x.size(dim)
        known = sizes_of("split:", {name: each for name, each in parts.items() if each != -1})
        product = math.prod(known.values())
        if len(known) == len(parts) - 1 and size % product == 0:
            parts = {name: known.get(name, size // product) for name in parts}
        if not parts or math.prod(parts.values()) != size or min(parts.values()) < 1:
            refuse(f"split: {dim}={size} of {x.text} cannot become {dims_text(parts)}")
        dims: list[tuple[str, int]] = []
        for name, each in x.dims.items():
            dims += parts.items() if name == dim else [(name, each)]
        return x._make("reshape", x._handle, dims)

    def merge(self, *names: str, into: str) -> "Tensor":
        """Several dimensions as one, at the place of the first of them."""
        x = self._tensor()
        sizes = [x.size(name) for name in names]
        if len(set(names)) < 2:
            refuse(f"merge: {x.text}: give two or more names, not {', '.join(names) or 'none'}")
        order: list[str] = []
        for name in x.dims:
            if name == names[0]:
                order += names
            elif name not in names:
                order.append(name)
        x = x.transpose(*order)
        first = order.index(names[0])
        dims = list(x.dims.items())
        dims[first : first + len(names)] = [(into, math.prod(sizes))]
        return x._make("reshape", x._handle, dims)

    def unstack(self, dim: str) -> list["Tensor"]:
        """What there is at each place along a dimension, without it."""
        x = self._tensor()
        left = [(name, size) for name, size in x.dims.items() if name != dim]
        return [
            x._make("reshape", x._make("slice", x._handle, dim, at, 1)._handle, left)
            for at in range(x.size(dim))
        ]

    def transpose(self, *order: str) -> "Tensor":
        """The same elements with dimensions in this order."""
        x = self._tensor()
        return x._make("transpose", x._handle, list(order))

    def slice(self, dim: str, start: int, stop: int) -> "Tensor":
        x = self._tensor()
        return x._make("slice", x._handle, dim, start, stop - start)

    def pad(self, dim: str, before: int = 0, after: int = 0) -> "Tensor":
        """With zeros."""
        x = self._tensor()
        return x._make("pad", x._handle, dim, before, after)

    def expand(self, **dims: int) -> "Tensor":
        """Repeated along new dimensions, which come first."""
        x = self._tensor()
        new = sizes_of("expand:", dims)
        return x._make("broadcast", x._handle, [*new.items(), *x.dims.items()])

    def cast(self, dtype: str) -> "Tensor":
        x = self._tensor()
        return x._make("cast", x._handle, dtype)

    # Over dimensions; over all of them when none is named.
    def sum(self, *dims: str) -> "Tensor":
        x = self._tensor()
        return x._make("sum", x._handle, list(dims or x.dims))

    def mean(self, *dims: str) -> "Tensor":
        x = self._tensor()
        if is_whole(x.dtype):
            refuse(f'mean: {x.text}: {x.dtype} has no fractions; cast it (x.cast("f32"))')
        return x._make("mean", x._handle, list(dims or x.dims))

    def max(self, *dims: str) -> "Tensor":
        x = self._tensor()
        return x._make("max", x._handle, list(dims or x.dims))

    def argmax(self, dim: str) -> "Tensor":
        x = self._tensor()
        return x._make("argmax", x._handle, dim)

    def cumulative_sum(self, dim: str) -> "Tensor":
        """Up to and with itself."""
        x = self._tensor()
        return x._make("cumulative_sum", x._handle, dim)

    # What Python asks for and only a running program knows.
    def __bool__(self) -> bool:
        self._unknown(
            "if, while, and, or", "use nn.where(condition, a, b), or decide by the configuration"
        )

    def __float__(self) -> float:
        self._unknown("float()", "compute with tensors, or return it from the model and run it")

    def __int__(self) -> int:
        self._unknown("int()", "compute with tensors, or use x.size(name) for a size")

    __index__ = __int__

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._unknown("a NumPy function", "use the functions of tutti.nn")

    def __getitem__(self, _: object) -> NoReturn:
        refuse(
            f"[…] of {self._tensor().text}: dimensions have names, not places; use"
            " x.slice(name, start, end) or x.unstack(name)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        from tutti import nn

        hint = _INSTEAD_OF.get(name, "")
        if callable(getattr(nn, name, None)):
            hint = f"nn.{name}(x)"
        hint = f"; use {hint}" if hint else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name}{hint}")

    def __iter__(self) -> NoReturn:
        self._unknown("a loop over it", 'use x.unstack("name") for the parts along a dimension')

    def __len__(self) -> int:
        self._unknown("len()", "use x.size(name)")

    def _unknown(self, asked: str, instead: str) -> NoReturn:
        text = self._tensor().text
        refuse(
            f"{asked} needs the values of {text}, which are not known while a model is traced;"
            f" {instead}"
        )


class Tensor(Value):
    """A value of the graph that is being traced."""

    __slots__ = ("_handle", "_known", "_trace")

    def __init__(self, trace: Trace, handle: _core.Tensor, known: Known | None = None) -> None:
        self._trace = trace
        self._handle = handle
        self._known = known

    def _tensor(self) -> "Tensor":
        return self

    def _make(self, operation: str, *operands: Any) -> "Tensor":
        made = self._trace.make(operation, *operands)
        known = self._known and self._known.after(operation, operands[1:])
        return Tensor(self._trace, made, known)

    @property
    def text(self) -> str:
        """f32[batch=16, time=256]"""
        return self._handle.text()

    def __repr__(self) -> str:
        return f"<tutti.nn.Tensor {self.text}>"


def as_tensor(value: Any, doing: str) -> Tensor:
    """The value as a tensor; raises when it is neither that nor a parameter."""
    if isinstance(value, Value):
        return value._tensor()
    refuse(f"{doing}: {kind_of(value)} is not a tensor")


def make(operation: str, *operands: Any, known: Known | None = None) -> Tensor:
    """An operation of the trace under way that has no tensor to ask."""
    trace = current(operation)
    return Tensor(trace, trace.make(operation, *operands), known)


def constant(value: Any, dtype: str, doing: str) -> Tensor:
    """A number as a tensor; ``doing``: the operation and what else it is of, for its mistakes."""
    number = number_of(value)
    if number is None:
        refuse(f"{doing} and {kind_of(value)}, which is no number")
    return make("constant", as_constant(number, dtype, doing), dtype)


def _near(name: str, known: Any) -> str:
    near = _core.suggest(str(name), list(known))
    return f"; did you mean {near}?" if near else ""


def unary(operation: str, x: Value) -> Tensor:
    tensor = as_tensor(x, operation)
    return tensor._make("unary", operation, tensor._handle)


def _pair(operation: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors; a number takes the other's kind."""
    if isinstance(b, Value) and number_of(a) is not None:
        right = b._tensor()
        return constant(a, right.dtype, f"{operation}: {right.text}"), right
    if isinstance(a, Value) and number_of(b) is not None:
        left = a._tensor()
        return left, constant(b, left.dtype, f"{operation}: {left.text}")
    for each, other in ((a, b), (b, a)):
        if not isinstance(each, Value):
            beside = other._tensor().text if isinstance(other, Value) else kind_of(other)
            refuse(
                f"{operation}: {beside} and {kind_of(each)}: the second is neither a"
                " tensor nor a number; give arrays to the model as inputs or parameters"
            )
    return a._tensor(), b._tensor()


def binary(operation: str, a: Any, b: Any) -> Tensor:
    left, right = _pair(operation, a, b)
    if left.dtype != right.dtype:
        refuse(
            f"{operation}: {left.text} and {right.text} are of different kinds; cast one"
            f' (x.cast("{left.dtype}"))'
        )
    if operation == "div" and is_whole(left.dtype):
        refuse(
            f"div: {left.text} and {right.text}: / has fractions, which {left.dtype} has not; cast"
            ' both (x.cast("f32")), or use // for the whole part'
        )
    made = left._make("binary", operation, left._handle, right._handle)
    for each, number, first in ((left, b, False), (right, a, True)):
        if (value := number_of(number)) is not None:
            made._known = after_number(each._known, operation, value, first)
    return made


def _floor_divide(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """a // b and a % b."""
    left, right = _pair("floor_div", a, b)
    if not is_whole(left.dtype):
        below = unary("floor", binary("div", left, right))
        return below, left - below * right
    divisor = number_of(b)
    if divisor is None:
        refuse(
            f"floor_div: {left.text} and {right.text}: whole numbers are divided by numbers only,"
            ' as a tensor may have a 0; cast both (x.cast("f32"))'
        )
    if divisor == 0:
        refuse(f"floor_div: {left.text} and 0: nothing can be divided by 0")
    if divisor == -1:  # the least number has no quotient
        return -left, left - left
    # Towards zero, as processors divide; then down, where that was up.
    cut = left._make("binary", "div", left._handle, right._handle)
    rest = left - cut * right
    is_above = rest < 0 if divisor > 0 else rest > 0
    more = is_above.cast(left.dtype)
    return cut - more, rest + more * right
