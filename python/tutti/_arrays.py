"""Arrays of any library as the fabric sees them: their type by name, and what has their bytes.

Numbers that the runtime knows are handed to it as they are. What it does not know (complex numbers,
structures, dates, the other order of bytes) can be moved all the same, as bytes.
"""

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from tutti import _core
from tutti._error import Error

# Names of types, as the fabric has them, and NumPy's. bf16 is not one of NumPy's: its bits are, as
# uint16. Reductions of those want dtype="bf16" to be said.
DTYPES = {
    **{"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "uint16"},
    **{"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
    **{"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"},
    **{"bool": "bool", "c64": "complex64", "c128": "complex128"},
}
COMPLEX = ("c64", "c128")  # the runtime has them as bytes
MOST_BYTES = 1 << 62

_OURS = {numpys: ours for ours, numpys in DTYPES.items() if ours != "bf16"} | {"bfloat16": "bf16"}


class Kind(NamedTuple):
    """What a library's dtype is to the fabric."""

    name: str  # one of DTYPES; "" is moved as bytes
    itemsize: int
    known: bool  # to DLPack, as NumPy has it
    text: str  # for people


class Seen(NamedTuple):
    """An array, and what of it the runtime takes."""

    data: Any
    kind: Kind
    elements: int


_kinds: dict[Any, Kind] = {}  # by dtype; programs have few


def kind_of(dtype: Any) -> Kind:
    """Of NumPy's dtypes, torch's, and those of libraries that name theirs alike."""
    kind = _kinds.get(dtype)
    if kind is None:
        kind = _kinds[dtype] = _kind_of(dtype)
    return kind


def _kind_of(dtype: Any) -> Kind:
    if getattr(dtype, "hasobject", False):
        words = f"arrays of Python objects cannot be moved, and {dtype} has some"
        raise Error(f"{words}; see pickle and tutti.exchange", "invalid")
    text = str(getattr(dtype, "name", None) or dtype).removeprefix("torch.")
    native = getattr(dtype, "isnative", True)
    name = _OURS.get(text, "") if native else ""
    return Kind(name, dtype.itemsize, bool(name) and name != "bf16", text if native else str(dtype))


def see(given: Any) -> Seen:
    """An array in memory of the processor; errors say what else this is."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(given, numpy.ndarray):
        kind = kind_of(given.dtype)
        return Seen(given if kind.known else _as_known(given, kind), kind, given.size)
    return _see_foreign(given)


def _as_known(array: Any, kind: Kind) -> Any:
    """NumPy's array as one of a type that DLPack has."""
    if kind.name:
        return array.view(DTYPES[kind.name])
    if not array.flags.c_contiguous:
        raise Error("an array must be contiguous; see numpy.ascontiguousarray", "invalid")
    return array.reshape(-1).view("uint8") if kind.itemsize else array.reshape(-1)


def _see_foreign(given: Any) -> Seen:
    import numpy

    if hasattr(given, "__dlpack__"):
        _check_place(given)
        shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
        if shape is not None and hasattr(dtype, "itemsize"):
            kind = kind_of(dtype)
            return Seen(given, kind, math.prod(shape))
        flat, name, shape = _core.dlpack_bytes(given)
        kind = Kind(_OURS.get(name, ""), flat.size // max(math.prod(shape), 1), False, name)
        data = flat.view(DTYPES[kind.name]).reshape(shape) if kind.name else flat
        return Seen(data, kind, math.prod(shape))
    if hasattr(given, "__array_interface__"):
        return see(numpy.asarray(given))
    if given is None:
        raise Error("this call takes an array, not None", "invalid")
    try:
        view = memoryview(given)
    except TypeError:
        raise Error(f"a {type(given).__name__} is no array; see numpy.array", "invalid") from None
    return see(numpy.asarray(view))


def immutable(given: Any) -> bool:
    """Whether nobody may write to it. Some libraries do not tell DLPack that theirs are."""
    flags = getattr(given, "flags", None)
    if flags is not None and not getattr(flags, "writeable", True):
        return True
    return type(given).__module__.partition(".")[0] in ("jax", "jaxlib")


def check_writable(given: Any) -> None:
    if immutable(given):
        name = type(given).__name__
        words = f"what a call gives needs an array that can be written, and this {name} is not"
        raise Error(f"{words}; give an `out`, or adopt() it first", "invalid")
    if getattr(given, "requires_grad", False) and _records_gradients():
        words = f"this {type(given).__name__} requires its gradient, which what a call writes to it"
        words += " would not be part of; give detach() of it, which is the same memory, or call"
        raise Error(f"{words} under torch.no_grad()", "invalid")


def _records_gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or torch.is_grad_enabled()


def unfit(*given: Any) -> Error:
    """Why the runtime does not take what looked like arrays."""
    for array in given:
        if getattr(array, "requires_grad", False):
            words = "a tensor that requires its gradient is not shared; detach() it"
            return Error(words, "invalid")
        if device_of(array) not in (None, 1):
            words = f"a {type(array).__name__} that is not in memory of the processor cannot be"
            return Error(f"{words} moved; copy it there first", "invalid")
    kinds = " and ".join(type(array).__name__ for array in given if array is not None)
    words = f"a call takes arrays in memory of the processor, not {kinds}"
    return Error(f"{words}; what it writes to must not be read-only", "invalid")


def _check_place(array: Any) -> None:
    """Torch's tensors say where they are, and other libraries' like theirs."""
    device = getattr(array, "device", None)
    if getattr(device, "type", "cpu") == "cpu":
        return
    what = f"a {type(array).__name__}"
    if str(device) == "meta":
        words = f"{what} of the meta device has no memory to move; make it with device='cpu'"
        raise Error(words, "invalid")
    words = f"{what} that is on {device} cannot be moved; copy it to memory of the processor first"
    raise Error(f"{words}, with .cpu()", "invalid")


def device_of(array: Any) -> int | None:
    """DLPack's number of it; 1 is the processor."""
    try:
        return int(array.__dlpack_device__()[0])
    except Exception:  # whatever a library raises: it is only for words
        return None


def bytes_of(given: Any) -> Any:
    """NumPy's array of the bytes of a contiguous array, with no copy."""
    seen = see(given)
    if hasattr(seen.data, "reshape") and hasattr(seen.data, "flags"):
        return seen.data.reshape(-1).view("uint8")
    return _core.dlpack_bytes(seen.data)[0]


def numpy_dtype(dtype: Any) -> Any:
    """NumPy's dtype for a name of ours, a dtype of NumPy or its extensions, or of torch."""
    import numpy

    if isinstance(dtype, str):
        name = dtype.removeprefix("torch.")
        name = DTYPES.get(_OURS.get(name, name))
        if name is None:
            raise Error(f"'{dtype}' is no type of the fabric; use {', '.join(DTYPES)}", "invalid")
        return numpy.dtype(name)
    if not isinstance(dtype, numpy.dtype | type) and str(dtype).startswith("torch."):
        return numpy_dtype(str(dtype))
    try:
        made = numpy.dtype(dtype)
    except TypeError:
        words = f"{dtype!r} is no type of the fabric; use NumPy's or {', '.join(DTYPES)}"
        raise Error(words, "invalid") from None
    kind_of(made)
    if made.itemsize == 0:
        raise Error(f"{made} has no size; say how long it is, as in 'S8'", "invalid")
    return made


def as_shape(shape: Any) -> tuple[int, ...]:
    try:
        dims = tuple(map(operator.index, shape)) if hasattr(shape, "__iter__") else None
        dims = (operator.index(shape),) if dims is None else dims
    except TypeError:
        raise Error(f"{shape!r} is no shape; give a number, or several", "invalid") from None
    if any(size < 0 for size in dims):
        raise Error(f"there is no array of shape {dims}", "invalid")
    return dims


def bytes_for(shape: tuple[int, ...], itemsize: int) -> int:
    size = math.prod(shape) * itemsize
    if size > MOST_BYTES:
        raise Error(f"arrays of shape {shape} do not fit into any memory", "exhausted")
    return size


def check_counts(what: str, counts: Sequence[Any]) -> list[int]:
    try:
        whole = [operator.index(count) for count in counts]
    except TypeError:
        raise Error(f"{what} is a list of whole numbers, not {counts!r}", "invalid") from None
    if any(count < 0 for count in whole):
        raise Error(f"{what} has a negative number: {whole}", "invalid")
    return whole


def check_index(what: str, value: Any, below: int) -> int:
    try:
        index = operator.index(value)
    except TypeError:
        raise Error(f"{what} is a whole number, not {value!r}", "invalid") from None
    if not 0 <= index < below:
        limit = f"at most {below - 1}" if index > 0 else "0 or more"
        raise Error(f"{what} is {limit}, not {index}", "invalid")
    return index


def type_to_reduce(kind: Kind, op: str, told: str) -> str:
    """The runtime's name of the numbers that are joined."""
    if told not in ("", "bf16", "u16"):
        raise Error("dtype says what uint16 is: dtype='bf16' or dtype='u16'", "invalid")
    if told:
        if kind.name not in ("u16", told):
            raise Error(f"dtype='{told}' is for arrays of uint16, not {kind.text}", "invalid")
        return told
    if kind.name == "u16":
        words = "uint16 may be numbers or the bits of bf16; say dtype='u16' or dtype='bf16'"
        raise Error(words, "invalid")
    if kind.name in COMPLEX:
        words = f"{kind.text} is moved, not reduced; for sums give a view of floats: "
        raise Error(words + f"array.view('float{kind.itemsize * 4}')", "invalid")
    if kind.name == "bool":
        if op not in ("max", "min"):
            words = "truth values are not summed; use op='max' for any, 'min' for all, or a view"
            raise Error(f"{words} as uint8", "invalid")
        return "u8"
    if not kind.name:
        words = f"{kind.text} is moved, not reduced"
        swapped = ("<", ">")[sys.byteorder == "little"]
        if kind.text.startswith(swapped):
            words += "; see array.astype(array.dtype.newbyteorder('='))"
        raise Error(words, "invalid")
    return kind.name
