from typing import Any, Self

from typing_extensions import Buffer

version: str

def hash64(data: Buffer, seed: int = 0) -> int:
    """XXH3 of a contiguous buffer, read in place."""

def dlpack_bytes(array: Any) -> tuple[Any, str, tuple[int, ...]]:
    """Bytes of an object that has only DLPack's protocol, NumPy's name of its type, its shape."""

def parse_duration(text: str) -> float:
    """Seconds in text such as '250ms', '1.5s', '2m30s'; raises tutti.Error."""

def parse_recording(file: bytes) -> dict[str, Any]:
    """The bytes of a recording as a dict; raises tutti.Error."""

class RecordKind:
    """What an event is about; made once and reused."""

    def __init__(self, name: str, a: str = "", b: str = "") -> None: ...

class Counter:
    """A number that only grows, seen live by readers."""

    def add(self, n: int = 1) -> None: ...

class Gauge:
    """A number that goes up and down, seen live by readers."""

    def set(self, value: int) -> None: ...
    def add(self, change: int) -> None: ...

class Span:
    """Something with a beginning and an end: use it with `with`."""

    @property
    def id(self) -> int:
        """Its name within the recording; 0 when nothing is recorded."""

    def set(self, a: int, b: int = 0) -> None:
        """What the record of the end shall say."""

    def end(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Recorder:
    """A process's latest events, in a file that outlives it."""

    def __init__(
        self, path: str, *, process: str = "", lanes: int = 4, records_per_lane: int = 16384
    ) -> None: ...
    def event(self, kind: RecordKind | str, a: int = 0, b: int = 0, span: int = 0) -> None:
        """Records an event, alone or in a span."""

    def span(self, kind: RecordKind | str, a: int = 0, b: int = 0, parent: int = 0) -> Span:
        """Begins a span, perhaps within another."""

    def counter(self, name: str) -> Counter: ...
    def gauge(self, name: str) -> Gauge: ...
    def close(self) -> None:
        """Records nothing more."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Tensor:
    """A value of a graph that is being built."""

    @property
    def dtype(self) -> str: ...
    @property
    def dims(self) -> list[tuple[str, int]]: ...
    def text(self) -> str: ...

def passes() -> list[str]:
    """What is done to graphs, in order."""

def program_text(graph: Graph, after: str = "") -> str:
    """The program of a graph that has been through the passes, after this step or all."""

def program_steps() -> list[str]:
    """What is decided about programs, in order."""

def step_graph(model: Model, options: dict[str, object]) -> Graph:
    """What a Trainer with these options makes of it."""

class Graph:
    """Operations on values; prints as text that reads back."""

    @staticmethod
    def parse(text: str, name: str = "graph") -> Graph:
        """``name`` is what errors call it."""

    def text(self) -> str: ...
    @property
    def inputs(self) -> list[tuple[str, str, list[tuple[str, int]], bool]]:
        """Of each its name, kind of number, dimensions, and whether it is kept between calls."""

    @property
    def outputs(self) -> list[str]: ...
    def differentiate(self, loss: str, inputs: list[str]) -> Graph:
        """With an output "gradient/NAME" for each of these inputs."""

    def optimize(self, until: str = "") -> Graph:
        """After all passes, or after the last one of this name."""

    def rematerialise(self, scratch: str) -> Graph:
        """After `remove-unused`, with so much computed again that its program has no more scratch
        than this ("20MiB"), if that can be had."""

class Sharded:
    """A graph over a mesh ("dp=2,tp=2"), by rules ("vocab=tp") before those of its axes' names."""

    def __init__(self, graph: Graph, mesh: str, rules: str = "", limit: str | None = None) -> None:
        """``limit`` is how much an operand may be gathered to: "1GiB"."""

    def graph(self, rank: int | None = None) -> Graph:
        """Of all ranks, or of one."""

    def text(self, rank: int | None = None) -> str:
        """The same, under how inputs and outputs lie."""

class Parameter:
    """A weight of a model; those of repeated layers are one, with a "*" in its name."""

    @property
    def name(self) -> str: ...
    @property
    def dims(self) -> list[tuple[str, int]]: ...
    @property
    def init(self) -> tuple[str, float]: ...
    @property
    def decay(self) -> bool: ...
    @property
    def stacked(self) -> bool: ...

class Model:
    """A graph and its parameters: what nn.trace() returns."""

    @property
    def graph(self) -> Graph: ...
    @property
    def parameters(self) -> list[Parameter]: ...
    def parameter_count(self) -> int: ...
    def text(self) -> str: ...

class ModelBuilder:
    """Builds a model operation by operation, for tutti.nn, which names them."""

    def __init__(self, name: str, use: str, seed: int) -> None: ...
    def keep_cache(self, sequences: int, places: int) -> None: ...
    def at(self, where: str) -> None: ...
    def declare(
        self, name: str, dims: list[tuple[str, int]], init: str, scale: float, decay: bool
    ) -> None: ...
    def build(self) -> Model: ...

class Decoder:
    """A model over caches of keys and values, and what goes on from prompts."""

    def __init__(
        self,
        step: Model,
        chunk: Model,
        weights: str,
        sequences: int,
        places: int,
        chunk_size: int,
        threads: int,
        keep_packed: bool = False,
    ) -> None: ...
    def start(
        self,
        prompts: list[list[int]],
        tokens: int,
        temperature: float,
        top_k: int,
        top_p: float,
        seed: int,
        stop: list[int],
        keep: int | None,
    ) -> None: ...
    def next(self) -> list[tuple[int, int, str | None]]: ...
    @property
    def cache_bytes(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...

class Program:
    """A graph compiled for this machine."""

    def __init__(self, graph: Graph, threads: int = 0) -> None: ...
    def run(self, inputs: dict[str, Any]) -> dict[str, Any]: ...
    @property
    def arena_bytes(self) -> int: ...
    def text(self) -> str: ...

def interpret(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]: ...
def initial_weights(model: Model, seed: int) -> dict[str, Any]: ...
def suggest(word: str, candidates: list[str]) -> str | None: ...

class Tokens:
    """A text as numbers, in memory or a mapped file."""

    @property
    def name(self) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> int: ...
    def part(self, first: int, count: int) -> Tokens: ...

def open_tokens(path: str) -> Tokens: ...
def tokens_of(buffer: Any, item_bytes: int, name: str) -> Tokens: ...

def check_mesh(mesh: str, rules: str, workers: int) -> None:
    """Whether so many workers can be arranged so."""

class Trainer:
    """Trains a model, as tutti.Trainer asks."""

    def __init__(
        self,
        model: Model,
        evaluation: Model,
        train: Tokens,
        validation: Tokens | None,
        options: dict[str, Any],
    ) -> None: ...
    def step(self) -> tuple[int, float, float, float, float, float]: ...
    def progress(self, passing: bool) -> tuple[str, str]: ...
    def evaluate(self, batches: int) -> float: ...
    def save(self, path: str, metadata: dict[str, str]) -> None: ...
    def save_weights(self, path: str, metadata: dict[str, str]) -> None: ...
    def load(self, path: str) -> None: ...
    def load_weights(self, path: str) -> None: ...
    def initialise_weights(self) -> None: ...
    def digest(self) -> int: ...
    def peak_flops(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def has_state(self) -> bool: ...
    @property
    def was_aborted(self) -> bool: ...
    @property
    def was_torn(self) -> bool: ...
    @property
    def steps_done(self) -> int: ...
    @property
    def in_vault(self) -> bool: ...
    @property
    def plan(self) -> dict[str, Any]: ...
    def program_text(self) -> str: ...

class Output:
    """What a job prints, as tutti.cluster reads it."""

    def next(self) -> list[tuple[int, int, bytes]]: ...
    def missing(self) -> list[str]: ...
    def close(self) -> None: ...

class Door:
    """The cluster, as tutti.cluster uses it; answers are JSON."""

    def __init__(self) -> None: ...
    def close(self) -> None: ...
    def status(self) -> str: ...
    def jobs(
        self, all: bool, states: str, user: str, name: str, since: str, limit: int | None
    ) -> str: ...
    def job(self, job: int) -> str: ...
    def processes(self, job: int) -> str: ...
    def stuck(self, job: int, ended: bool) -> str: ...
    def submit(self, text: str, file_name: str, folder: str) -> int: ...
    def wait(self, job: int, timeout: float | None) -> str: ...
    def kill(self, job: int, grace: float | None) -> None: ...
    def signal(self, job: int, signal: str, processes: str) -> None: ...
    def verdict(self, job: int) -> str: ...
    def output(self, job: int) -> Output: ...
