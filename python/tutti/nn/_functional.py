"""Operations that are no operators: activations, attention, losses."""

from collections.abc import Sequence
from typing import Any

from tutti.nn._numbers import Number, is_whole, sizes_of
from tutti.nn._places import Known
from tutti.nn._tensor import (
    Operand,
    Tensor,
    Value,
    as_tensor,
    binary,
    constant,
    make,
    unary,
)
from tutti.nn._trace import current, refuse


def exp(x: Value) -> Tensor:
    return unary("exp", x)


def log(x: Value) -> Tensor:
    return unary("log", x)


def sqrt(x: Value) -> Tensor:
    return unary("sqrt", x)


def rsqrt(x: Value) -> Tensor:
    """One over the root."""
    return unary("rsqrt", x)


def sign(x: Value) -> Tensor:
    """-1, 0 or 1."""
    return unary("sign", x)


def floor(x: Value) -> Tensor:
    """The next whole number below, as floating point."""
    return unary("floor", x)


def is_finite(x: Value) -> Tensor:
    """Where x is neither infinite nor NaN."""
    return unary("is_finite", x)


def tanh(x: Value) -> Tensor:
    return unary("tanh", x)


def erf(x: Value) -> Tensor:
    return unary("erf", x)


def sin(x: Value) -> Tensor:
    return unary("sin", x)


def cos(x: Value) -> Tensor:
    return unary("cos", x)


def sigmoid(x: Value) -> Tensor:
    return 1 / (1 + exp(-x))


def silu(x: Value) -> Tensor:
    return x / (1 + exp(-x))


def relu(x: Value) -> Tensor:
    return maximum(x, 0)


def gelu(x: Value, approximate: bool = False) -> Tensor:
    """By the error function, or by GPT-2's approximation with tanh."""
    tensor = as_tensor(x, "gelu")
    return tensor._make("gelu", tensor._handle, approximate)


def maximum(a: Operand, b: Operand) -> Tensor:
    return binary("max", a, b)


def minimum(a: Operand, b: Operand) -> Tensor:
    return binary("min", a, b)


def where(condition: Value, yes: Operand, no: Operand) -> Tensor:
    """Of two, the one that the condition says, element by element."""
    test = as_tensor(condition, "where")
    if not isinstance(yes, Value) and not isinstance(no, Value):
        refuse("where: at least one of the two has to be a tensor; write nn.full(1.0)")
    given = as_tensor(yes if isinstance(yes, Value) else no, "where")
    parts = [
        x._tensor() if isinstance(x, Value) else constant(x, given.dtype, f"where: {given.text}")
        for x in (yes, no)
    ]
    return test._make("select", test._handle, parts[0]._handle, parts[1]._handle)


def full(value: Number, dtype: str = "f32") -> Tensor:
    """A number as a tensor without dimensions."""
    return constant(value, dtype, f"full: {dtype}")


def arange(dtype: str = "i32", **dim: int) -> Tensor:
    """nn.arange(time=256): 0, 1, 2 … along one dimension."""
    if len(dim) != 1:
        refuse("arange: give one dimension: nn.arange(time=256)")
    ((name, size),) = sizes_of("arange:", dim).items()
    known = Known(name, range(size)) if dtype in ("i32", "i64") else None
    return make("iota", name, size, dtype, known=known)


def positions(x: Value, dim: str = "time") -> Tensor:
    """The place of each element of x in its sequence: i32[time]. When a sequence is generated piece
    by piece, it goes on where the last piece ended; arange() does not."""
    size = x.size(dim)
    places = current("positions").places
    known = Known(dim, range(size)) if places is None else Known(None, range(places))
    return make("positions", dim, size, known=known)


def concat(parts: Sequence[Value], dim: str) -> Tensor:
    tensors = [as_tensor(part, "concat") for part in parts]
    if not tensors:
        refuse("concat: there is nothing to join")
    return tensors[0]._make("concat", [each._handle for each in tensors], dim)


def softmax(x: Value, dim: str) -> Tensor:
    tensor = as_tensor(x, "softmax")
    return tensor._make("softmax", tensor._handle, dim)


def layer_norm(
    x: Value, scale: Value | None, shift: Value | None, dim: str, epsilon: float = 1e-5
) -> Tensor:
    """x less its mean, over its deviation, along a dimension; times scale, plus shift."""
    tensor = as_tensor(x, "layer_norm")
    handles = []
    for value, otherwise in ((scale, 1), (shift, 0)):
        if value is None:
            flat = constant(otherwise, tensor.dtype, "layer_norm").expand(**{dim: tensor.size(dim)})
            handles.append(flat._handle)
        else:
            handles.append(as_tensor(value, "layer_norm")._handle)
    return tensor._make("layer_norm", tensor._handle, *handles, dim, epsilon)


def rms_norm(x: Value, scale: Value, dim: str, epsilon: float = 1e-6) -> Tensor:
    """x over the root of its mean square along a dimension, times scale."""
    tensor = as_tensor(x, "rms_norm")
    weight = as_tensor(scale, "rms_norm")
    return tensor._make("rms_norm", tensor._handle, weight._handle, dim, epsilon)


def embedding(table: Value, indices: Value, dim: str) -> Tensor:
    """Rows of a table: its dimension ``dim`` gives way to those of the indices."""
    rows = as_tensor(table, "embedding")
    places = as_tensor(indices, "embedding")
    known = places._known
    if known is not None and dim in rows.dims:
        size = rows.size(dim)
        if known.least < 0 or known.most >= size:
            refuse(
                f"embedding: the indices {places.text} go from {known.least} to {known.most}, and"
                f" the table {rows.text} has {dim}={size}: use shorter sequences (a smaller"
                " context), or a table with more rows"
            )
    return rows._make("gather", rows._handle, places._handle, dim)


def scatter_add(indices: Value, updates: Value, **dim: int) -> Tensor:
    """What embedding() takes apart put together: nn.scatter_add(tokens, ones, vocab=65) is a table
    with a row for each index, the sum of the updates that go there. Updates have the dimensions of
    the indices, then those of a row; an index outside of the table stops the program."""
    if len(dim) != 1:
        refuse("scatter_add: say how many rows the table has: nn.scatter_add(…, vocab=65)")
    ((name, size),) = sizes_of("scatter_add:", dim).items()
    places, parts = as_tensor(indices, "scatter_add"), as_tensor(updates, "scatter_add")
    return places._make("scatter_add", places._handle, parts._handle, name, size)


def attention(
    q: Value,
    k: Value,
    v: Value,
    *,
    causal: bool = True,
    scale: float | None = None,
    time: str = "time",
    head: str = "head",
) -> Tensor:
    """softmax(q · k * scale) · v for every query.

    All have dimensions ``time`` and ``head``. Keys and values may lack one of q's other dimensions:
    then all along it share them (grouped queries: q[…, heads, group, head], k[…, heads, head]).
    """
    query, key, value = (as_tensor(each, "attention") for each in (q, k, v))
    for each in (query, key, value):
        for name in (time, head):
            if name not in each.dims:
                refuse(
                    f"attention: {query.text}, {key.text} and {value.text}: all need dimensions"
                    f" {time} and {head}"
                )
    key, value = (each.rename(**{time: "keys"}) for each in (key, value))
    handles = (query._handle, key._handle, value._handle)
    return query._make("attention", *handles, causal, scale or 0.0, time, "keys", head)


def cross_entropy(x: Value, weight: Value, targets: Value, *, over: str) -> Tensor:
    """The loss of each target: -log softmax(x · weight) there. ``weight`` is [vocabulary, over].

    The logits of all targets are never held at once. Targets below 0 have a loss of 0,
    which counts when the mean is taken of all.
    """
    inside = as_tensor(x, "cross_entropy")
    head = as_tensor(weight, "cross_entropy")
    target = as_tensor(targets, "cross_entropy")
    rows = [name for name in head.dims if name != over]
    if len(rows) != 1:
        refuse(
            f"cross_entropy: {inside.text} and {head.text}: the second has to be"
            f" [vocabulary, {over}]"
        )
    if target.dtype not in ("i32", "i64"):
        refuse(f"cross_entropy: {inside.text} and targets {target.text}, which are no i32")
    head = head.transpose(rows[0], over)
    handles = (inside._handle, head._handle, target._handle)
    return inside._make("linear_cross_entropy", *handles, over, rows[0])


def dropout(x: Value, rate: float) -> Tensor:
    """Zero with probability ``rate``, the others larger by as much; nothing unless training.

    Which ones is a function of the seed, the place in the model and the batch.
    """
    tensor = as_tensor(x, "dropout")
    if is_whole(tensor.dtype):
        refuse(f'dropout: {tensor.text} is not of floating point; cast it (x.cast("f32"))')
    return tensor._make("dropout", tensor._handle, rate, "dropout")


def check_names(**given: Any) -> None:
    """For modules: raises unless each is a dictionary of names and sizes."""
    for what, dims in given.items():
        if not isinstance(dims, dict) or not all(isinstance(name, str) for name in dims):
            refuse(f'{what} is {dims!r}; give names and sizes: {{"embed": 768}}')
