"""Modules and their parameters: ordinary classes, whose attributes give the names."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tutti import _core
from tutti.nn._numbers import sizes_of
from tutti.nn._tensor import Tensor, Value, as_tensor, dims_text
from tutti.nn._trace import Trace, current, is_under_way, refuse, tracing, user_line


@dataclass(frozen=True)
class Init:
    """What a parameter is before the first step."""

    kind: str
    scale: float = 0.0


zeros = Init("zeros")
ones = Init("ones")


def normal(deviation: float) -> Init:
    return Init("normal", deviation)


def uniform(half_width: float) -> Init:
    """Evenly from -half_width to half_width."""
    return Init("uniform", half_width)


class Parameter(Value):
    """A weight. Its name is that of the attribute it is assigned to, after those of the modules it
    is in; in a trace it computes as a tensor does."""

    __slots__ = ("_dims", "decay", "init", "made_at")

    def __init__(self, dims: dict[str, int], init: Init, decay: bool | None) -> None:
        self._dims = dims
        self.init = init
        self.decay = len(dims) > 1 if decay is None else decay
        self.made_at = user_line()

    @property
    def dims(self) -> dict[str, int]:
        return dict(self._dims)

    @property
    def dtype(self) -> str:
        return "f32"

    def _tensor(self) -> Tensor:
        trace = current("a parameter is used")
        return Tensor(trace, trace.weight(self))

    def __repr__(self) -> str:
        return f"<tutti.nn.Parameter f32[{dims_text(self._dims)}]>"


def parameter(init: Init = zeros, decay: bool | None = None, **dims: int) -> Parameter:
    """A weight with these dimensions: nn.parameter(embed=768, hidden=3072, init=nn.normal(0.02)).

    Without ``decay`` the optimizer pulls those towards zero that have two dimensions or more.
    """
    sizes = sizes_of("a parameter's", dims)
    if not isinstance(init, Init):
        refuse(f"init is {init!r}; use nn.zeros, nn.ones, nn.normal(deviation) or nn.uniform(half)")
    return Parameter(sizes, init, decay)


class Module:
    """Something with parameters: assign them, and other modules, to attributes, and write what it
    computes as ``__call__``. Lists, tuples and dictionaries of modules count with their keys."""

    # What it was made with, so that the folder of a run can say how to make it again.
    __slots__ = ("__dict__", "__weakref__", "_made_with")
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        made = super().__new__(cls)
        made._made_with = (arguments, keywords)
        return made

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their names, those of repeated layers once, with a "*"."""
        for name, found in _walk(self, ""):
            if isinstance(found, Parameter):
                yield name, found

    def __repr__(self) -> str:
        inside = ", ".join(name for name, _ in _children(self))
        return f"<{type(self).__name__}: {inside}>"


class Layers(Module):
    """The same module ``count`` times in a row, each with weights of its own. They are kept as one
    tensor, and what is compiled is as large for 96 layers as for 2."""

    def __init__(self, count: int, module: Module) -> None:
        if not isinstance(count, int) or count < 1:
            refuse(f"there must be 1 or more layers, not {count!r}")
        if not isinstance(module, Module):
            refuse(f"Layers repeats a module, not {type(module).__name__}")
        self.count = count
        self.module = module

    def __call__(self, x: Value, *constants: Any) -> Tensor:
        """x through all layers; what else they get is the same for each."""
        trace = current("layers are called")
        path = trace.paths.get(id(self))
        if path is None:
            refuse(
                f"{self!r} is no part of the model: assign it to an attribute (self.x = …) of a"
                " module of the model"
            )
        carried = as_tensor(x, "layers")
        into = carried._make("open_layers", self.count, path, carried._handle)
        out = self.module(into, *constants)
        return into._make("close_layers", as_tensor(out, "what a layer returns")._handle)

    def __repr__(self) -> str:
        return f"<Layers: {self.count} x {self.module!r}>"


def _children(module: Module) -> Iterator[tuple[str, Any]]:
    if isinstance(module, Layers):
        yield "*", module.module
        return
    for name, value in vars(module).items():
        yield from _found(name, value)


def _found(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Module | Parameter):
        yield name, value
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _found(f"{name}.{place}", each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _found(f"{name}.{key}", each)


def _walk(module: Module, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, child in _children(module):
        yield prefix + name, child
        if isinstance(child, Module):
            yield from _walk(child, f"{prefix}{name}.")


def _declare(trace: Trace, model: Module) -> None:
    """Gives every parameter its name; each may have one only."""
    seen: dict[int, str] = {}
    counts: dict[str, int] = {}  # of layers, by their path
    for name, found in _walk(model, ""):
        if id(found) in seen:
            kind = "parameter" if isinstance(found, Parameter) else type(found).__name__
            refuse(
                f"{seen[id(found)]} and {name} are the same {kind}: a file would have it twice."
                " Keep it in one place and use it from there: pass it to where it is called"
            )
        seen[id(found)] = name
        if isinstance(found, Layers):
            counts[name] = found.count
        if isinstance(found, Module):
            trace.paths[id(found)] = name
            continue
        dims = list(found.dims.items())
        for path, count in counts.items():
            if name.startswith(f"{path}.*."):
                dims.insert(0, ("layer", count))
        trace.builder.at(found.made_at)
        trace.builder.declare(name, dims, found.init.kind, found.init.scale, found.decay)
        trace.names[id(found)] = name


@dataclass(frozen=True)
class Input:
    """What a model is called with: a kind of number and named dimensions."""

    dtype: str
    dims: dict[str, int]


def f32(**dims: int) -> Input:
    return Input("f32", sizes_of("f32:", dims))


def i32(**dims: int) -> Input:
    return Input("i32", sizes_of("i32:", dims))


def _check_signature(function: Callable[..., Any], inputs: dict[str, Any]) -> None:
    """That a model takes what it will be given."""
    called = function.__call__ if isinstance(function, Module) else function
    try:
        inspect.signature(called).bind(**inputs)
    except TypeError as error:
        code = getattr(called, "__code__", None)
        where = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else None
        given = f"given {', '.join(inputs)}" if inputs else "given no inputs"
        refuse(f"{called.__qualname__}, {given}, cannot be called: {error}", where)


def trace(
    function: Module | Callable[..., Any],
    /,
    *,
    use: str = "train",
    seed: int = 0,
    name: str | None = None,
    cache: tuple[int, int] | None = None,
    **inputs: Input,
) -> _core.Model:
    """Runs a model's code once, on tensors without values, and returns the graph that it makes.

    ``function`` is a module or a method of one: nn.trace(gpt, tokens=nn.i32(batch=8, time=256), …).
    It gets the inputs by name and returns a tensor, whose output is called "loss", or as the method
    is; or a dictionary of tensors by name. ``use`` is "train", or "evaluate" or "generate", for
    which nothing is dropped. With ``cache``, a number of sequences and of places, a model that
    generates takes its sequences piece by piece: attention keeps keys and values, and positions
    count from the input "position".
    """
    if is_under_way():
        refuse("nn.trace() is called by a model that is being traced")
    model = getattr(function, "__self__", function)
    if not isinstance(model, Module):
        refuse(f"nn.trace() takes a module or a method of one, not {type(model).__name__}")
    under_way = Trace(name or type(model).__name__.lower(), use, seed)
    if cache is not None:
        under_way.make("keep_cache", *cache)
        under_way.places = cache[1]
    tensors = {}
    for each, given in inputs.items():
        if not isinstance(given, Input):
            refuse(f"input {each}: say what it is by nn.i32(batch=…, time=…) or nn.f32(…)")
        handle = under_way.make("input", each, given.dtype, list(given.dims.items()))
        tensors[each] = Tensor(under_way, handle)
    _declare(under_way, model)
    _check_signature(function, inputs)
    with tracing(under_way):
        results = function(**tensors)
    only = "loss" if function is model else getattr(function, "__name__", "output")
    if not isinstance(results, dict):
        results = {only: results}
    for each, result in results.items():
        if not isinstance(result, Tensor):
            refuse(f"output {each} is {type(result).__name__}, not a tensor")
        under_way.make("output", each, result._handle)
    return under_way.builder.build()
