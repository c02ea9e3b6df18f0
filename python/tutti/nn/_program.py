"""Models that run, on NumPy's arrays: to look at what they compute. Training has its own way."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tutti import _core
from tutti._error import Error

if TYPE_CHECKING:  # it takes longer to import than all of tutti, and training does without
    import numpy as np

_DTYPES = {"f32": "float32", "i32": "int32", "i64": "int64", "u32": "uint32", "bool": "bool"}


# More threads than processors only wait for each other; this many for each are a mistyped number,
# with which no step would ever end.
_MOST_PER_PROCESSOR = 8


def _contiguous(graph: _core.Graph, arrays: Mapping[str, "np.ndarray"]) -> "dict[str, np.ndarray]":
    import numpy as np

    kinds = {name: _DTYPES.get(dtype) for name, dtype, _, _ in graph.inputs}
    given = {}
    for name, array in arrays.items():
        if name not in kinds:
            near = _core.suggest(name, list(kinds))
            hint = f"; did you mean {near}?" if near else ""
            raise Error(f"the model has no input {name}{hint}", "invalid")
        try:
            given[name] = np.ascontiguousarray(array, kinds[name]).reshape(np.shape(array))
        except (TypeError, ValueError) as error:
            raise Error(f"input {name} is no array of {kinds[name]}: {error}", "invalid") from None
        except MemoryError as error:
            raise Error(f"input {name}: {error}; make it smaller", "exhausted") from None
    return given


def _graph(model: _core.Model | _core.Graph) -> _core.Graph:
    return model.graph if isinstance(model, _core.Model) else model


def processors() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0))


def check_threads(threads: int) -> None:
    """Raises what is no number of threads; 0 are as many as cores."""
    if threads < 0 or threads > _MOST_PER_PROCESSOR * processors():
        raise Error(
            f"threads is {threads}, and there are {processors()} processors to run on; use 0 for"
            " a thread on each",
            "invalid",
        )


class Program:
    """A model compiled for this machine; call it with an array for each input and parameter."""

    def __init__(self, model: _core.Model | _core.Graph, *, threads: int = 0) -> None:
        check_threads(threads)
        self.graph = _graph(model)
        self._program = _core.Program(self.graph, threads)

    def __call__(self, arrays: Mapping[str, "np.ndarray"]) -> "dict[str, np.ndarray]":
        return self._program.run(_contiguous(self.graph, arrays))

    @property
    def scratch_bytes(self) -> int:
        """Memory it needs besides inputs and outputs."""
        return self._program.arena_bytes

    def text(self) -> str:
        """Its instructions and the places of its buffers."""
        return self._program.text()


def interpret(
    model: _core.Model | _core.Graph, arrays: Mapping[str, "np.ndarray"]
) -> "dict[str, np.ndarray]":
    """The outputs, computed slowly and plainly, operation by operation."""
    graph = _graph(model)
    return _core.interpret(graph, _contiguous(graph, arrays))


def initial_weights(model: _core.Model, seed: int = 0) -> "dict[str, np.ndarray]":
    """What every parameter is before the first step, by name; those of repeated layers stacked."""
    return _core.initial_weights(model, seed)
