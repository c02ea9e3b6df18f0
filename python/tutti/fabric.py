"""Tensors in memory that the ranks of a host share, and collectives over them.

    fabric = tutti.fabric.join()          # in a program that `tutti run` or `tutti submit` started
    gradient = fabric.empty((1024, 768), "f32")
    ...
    fabric.world.all_reduce(gradient, op="mean")

Arrays are NumPy's, or anything that speaks DLPack or the buffer protocol, torch tensors among them.
What fabric.empty() gives lies in the shared heap and is used where it lies; other memory is copied
into the heap and back. When a rank dies, whoever waits gets PeerLost within milliseconds; rejoin()
then takes part in the next epoch. Outside of a job a process is alone, and everything works.
docs/fabric.md is the manual.
"""

import atexit
import contextlib
import math
import os
import sys
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tutti import _core
from tutti._arrays import (
    COMPLEX,
    DTYPES,
    Seen,
    as_shape,
    bytes_for,
    bytes_of,
    check_counts,
    check_index,
    check_writable,
    immutable,
    numpy_dtype,
    see,
    type_to_reduce,
    unfit,
)
from tutti._error import Error
from tutti.layout import Copy, Layout, Mesh, Plan, plan

__all__ = [
    "Buckets", "Copy", "CopyWarning", "Fabric", "Finished", "Group", "Layout", "Mesh", "Operation",
    "PeerLost", "Plan", "Region", "TimedOut", "join", "plan", "whole_lanes",
]  # fmt: skip

TIMEOUT_S = 600.0
BUCKET_BYTES = 4 << 20
REGION_DIMENSIONS = 8  # at most
MOST_RANKS = 1 << 32
MOST_TAGS = 1 << 64
# Who awaits an operation looks after it as often as this: it is done by whoever looks.
FIRST_PAUSE_S = 50e-6
LONGEST_PAUSE_S = 2e-3


class PeerLost(Error):
    """Ranks of the epoch died: what was under way is over. rejoin() waits for the next epoch."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message, "unavailable")
        self.ranks = tuple(ranks)  # as far as is known


class Finished(Error):
    """Other ranks have finished and left: a rank that was killed last of all has nobody to join."""


class TimedOut(Error, TimeoutError):
    """The time allowed ran out; the text says who is missing. The call may be waited for again."""


class CopyWarning(ResourceWarning):
    """An array was copied into the heap. Python hides these until asked to show them:

    warnings.simplefilter("error", tutti.fabric.CopyWarning)    # or "default", once a line
    """


class Operation:
    """A call under way: wait() for it, poll() it, or `await` it in asyncio."""

    def __init__(self, fabric: "Fabric", begun: _core.FabricOperation, result: Any) -> None:
        self._fabric = fabric
        self._begun = begun
        self._result = result

    @property
    def done(self) -> bool:
        """Whether it is; does not help it along."""
        return self._begun.done

    def poll(self) -> bool:
        """Do what can be done without waiting; whether that was all."""
        try:
            return self._begun.poll()
        except Error as error:
            raise self._fabric._told(error) from None

    def _lasts(self) -> bool:
        try:
            return not self._begun.poll()
        except Error:  # told to whoever waits for it
            return False

    def __await__(self) -> Generator[Any, None, Any]:
        """As wait(), while other tasks of the loop go on. Work is done by a thread of its pool."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        import asyncio  # takes long, and few programs want it

        loop = asyncio.get_running_loop()
        until = time.monotonic() + self._fabric.timeout
        pause = FIRST_PAUSE_S
        # A thread that waited would keep the fabric from all others meanwhile; one that polls
        # has it only while there is something to do.
        while not self.done and not await loop.run_in_executor(None, self.poll):
            if time.monotonic() >= until:
                return self.wait(0)  # says who is missing
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        return self._result

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it is done; gives the result. With a timeout of 0 or less it only looks."""
        try:
            self._begun.wait(self._fabric.timeout if timeout is None else timeout)
        except Error as error:
            raise self._fabric._told(error) from None
        return self._result


class Buckets:
    """Arrays that are reduced together, in few calls; Group.buckets() makes it.

    ready(i) says that array i is there: a bucket begins when all of its arrays are, and the buckets
    before it have begun. wait() is for the end of all, and then the next round may begin.
    """

    def __init__(self, fabric: "Fabric", core: Any) -> None:
        self._fabric = fabric
        self._core = core
        self.size: int = core.size  # calls for each round

    def ready(self, array: int) -> None:
        with self._fabric._telling():
            self._core.ready(array)

    def wait(self, timeout: float | None = None) -> None:
        with self._fabric._telling():
            self._core.wait(self._fabric.timeout if timeout is None else timeout)


@dataclass(frozen=True)
class Region:
    """An array that its rank shows to others, for get() and put(); in this epoch."""

    rank: int
    offset: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def _words(self) -> list[int]:
        """As int64s, as many for all."""
        dims = [len(self.shape), *self.shape, *self.strides]
        head = [self.rank, self.offset, self.itemsize, list(DTYPES).index(self.dtype)]
        return [*head, *dims, *[0] * (2 * REGION_DIMENSIONS + 1 - len(dims))]

    @staticmethod
    def _of(words: Sequence[int]) -> "Region":
        rank, offset, itemsize, dtype, dims, *rest = (int(word) for word in words)
        shape, strides = tuple(rest[:dims]), tuple(rest[dims : 2 * dims])
        return Region(rank, offset, itemsize, shape, strides, list(DTYPES)[dtype])


class Group:
    """Ranks that call collectives together, in the same order. `index` is ours among `ranks`.

    Each call waits for its end and gives its result; with wait=False it gives an Operation.
    """

    def __init__(self, fabric: "Fabric", group: _core.FabricGroup) -> None:
        self._fabric = fabric
        self._group = group
        self.ranks: list[int] = group.ranks
        self.index: int = group.index
        self.size = len(self.ranks)
        self.name: str = group.name

    def __repr__(self) -> str:
        return f"<tutti.fabric.Group {self.name}: ranks {self.ranks}>"

    def barrier(self, wait: bool = True) -> Any:
        """Until all have come."""
        return self._call("barrier", None, None, 0, wait)

    def all_reduce(
        self, array, op: str = "sum", out=None, *, shared: bool = False, dtype="", wait=True
    ):
        """Everybody gets the sum (mean, max, min) of all arrays; in place unless `out` is given.

        With shared=True `out` is one that shared() gave, the same for all: it is written once.
        """
        result = array if out is None else out
        elements = _elements(array)
        _same_size(array, result)
        more = {"shared": shared, "dtype": dtype}
        return self._call("all_reduce", array, result, elements, wait, op, **more)

    def buckets(
        self, arrays: Sequence[Any], op: str = "sum", *, bytes: int = BUCKET_BYTES, dtype=""
    ) -> "Buckets":
        """all_reduce of many arrays, in place, again and again: small ones are joined.

        The arrays, their order and `bytes` are the same for all; no result depends on `bytes`.
        """
        given = []
        for array in arrays:
            check_writable(array)
            given.append(see(array))
        types = [type_to_reduce(each.kind, op, dtype) for each in given]
        data = [each.data for each in given]
        try:
            with self._fabric._telling():
                return Buckets(self._fabric, self._group.buckets(data, types, op, bytes, _caller()))
        except TypeError:
            raise unfit(*arrays) from None

    def all_reduce_lanes(
        self, parts: Sequence[tuple[int, int, Any]], lanes: int, out, op: str = "sum", *,
        dtype="", wait=True,
    ):  # fmt: skip
        """An all_reduce whose summands are lanes, dealt to ranks in any way: the bits are the same.

        Each part is (first lane, how many, their sum); whole_lanes() says which may be joined.
        """
        seen = [(first, count, see(part)) for first, count, part in parts]
        kind = see(out).kind
        for _, _, part in seen:
            if part.kind.text != kind.text:
                words = f"parts are of the type of their output, {kind.text}, not {part.kind.text}"
                raise Error(words, "invalid")
        given = [(first, count, part.data) for first, count, part in seen]
        more = {"parts": given, "lanes": lanes, "dtype": dtype}
        return self._call("all_reduce", None, out, _elements(out), wait, op, **more)

    def reduce_scatter(
        self, array, out, op: str = "sum", counts: Sequence[int] = (), *, dtype="", wait=True
    ):
        """Each gets its share of the sum: equal ones, or `counts` elements each."""
        more = {"counts": counts, "dtype": dtype}
        return self._call("reduce_scatter", array, out, _elements(array), wait, op, **more)

    def all_gather(self, array, out, *, shared: bool = False, wait=True):
        """Everybody gets all arrays, one after the other; they may differ in size."""
        return self._call("all_gather", array, out, _elements(array), wait, shared=shared)

    def broadcast(self, array, root: int = 0, wait=True):
        """Everybody gets the array of the member with index `root`, in place."""
        return self._call("broadcast", array, array, _elements(array), wait, root=root)

    def all_to_all(
        self, array, out, counts: Sequence[int] = (), incoming: Sequence[int] = (), wait=True
    ):
        """Part i of everybody's array goes to member i: equal parts, or `counts` elements each,
        and then `incoming` says how many come from each.
        """
        elements = 0 if counts else self._even(array)
        extra = {"counts": counts, "incoming": incoming}
        return self._call("all_to_all", array, out, elements, wait, **extra)

    def gather(self, array, out=None, root: int = 0, wait=True):
        """The root gets all arrays, one after the other; they may differ in size."""
        return self._call("gather", array, out, _elements(array), wait, root=root)

    def scatter(self, array, out, root: int = 0, wait=True):
        """Each gets its equal part of the root's array; the others give None."""
        return self._call("scatter", array, out, _elements(out), wait, root=root)

    def shift(self, array, out, distance: int = 1, wait=True):
        """Each sends its array to the member `distance` places on, round the ring."""
        _same_size(array, out)
        return self._call("shift", array, out, _elements(array), wait, distance=distance)

    def reshard(self, arrays, plan: Plan, out=None, wait=True):
        """Bring tensors from one layout to another; gives what this rank then holds.

        `arrays` is what it holds now: an array, or as many as the plan has dtypes, or None where
        its source has no part here; for a plan of names, a mapping of names to those. `out` is of
        the same form for the target; without, arrays of the heap are made.
        """
        given = _by_name(plan, arrays, "arrays")
        if out is None:
            results = {name: self._room(plan, name) for name in plan.names}
        else:
            results = _by_name(plan, out, "out")
        inputs = [_handed(array) for name in plan.names for array in given[name]]
        for array in (array for some in results.values() for array in some):
            check_writable(array)
        outputs = [_handed(array) for name in plan.names for array in results[name]]
        result = out
        if out is None:
            tensors = {n: r[0] if len(r) == 1 else tuple(r) for n, r in results.items()}
            result = tensors if plan.named else tensors[plan.names[0]]
        try:
            begun = self._group.reshard(plan._core, inputs, outputs, _caller())
        except Error as error:
            raise self._fabric._told(error) from None
        operation = Operation(self._fabric, begun, result)
        return operation.wait() if wait else operation

    def _room(self, plan: Plan, name: str) -> list[Any]:
        shape = plan.target(name).shape_on(self._fabric.rank)
        if shape is None:
            return [None] * len(plan.dtypes(name))
        return [self._fabric.empty(shape, dtype) for dtype in plan.dtypes(name)]

    def shared(self, shape, dtype: str = "f32"):
        """An array that all members see: for shared=True. To be called by all of them."""
        dims, numpys = as_shape(shape), numpy_dtype(dtype)
        with self._fabric._telling():
            flat = self._group.shared_bytes(bytes_for(dims, numpys.itemsize))
        return flat.view(numpys).reshape(dims)

    def regions(self, array) -> list[Region]:
        """Everybody shows an array of its heap; gives those of all, for get() and put()."""
        own = self._fabric.region(array)._words()
        mine = self._fabric.empty(len(own), "i64")
        mine[...] = own
        everybody = self._fabric.empty(len(own) * self.size, "i64")
        self.all_gather(mine, everybody)
        return [Region._of(words) for words in everybody.reshape(self.size, -1)]

    def _even(self, array) -> int:
        elements = _elements(array)
        if elements % self.size:
            words = f"{elements} elements are no {self.size} equal parts; give counts"
            raise Error(words, "invalid")
        return elements // self.size

    def _call(
        self, kind, array, out, elements, wait, op="sum", root=0, distance=1, shared=False,
        counts=(), incoming=(), lanes=0, parts=(), dtype="",
    ):  # fmt: skip
        given, room = None, None
        if array is not None:
            given = see(array)
        if out is not None:
            room = given if out is array else see(out)
            check_writable(out)
        name, scale = _moved_as(kind, given, room, op, dtype)
        if root:
            root = check_index("root", root, MOST_RANKS)
        counts, incoming = check_counts("counts", counts), check_counts("incoming", incoming)
        if scale != 1:
            counts, incoming = [c * scale for c in counts], [c * scale for c in incoming]
        try:
            begun = self._group.start(
                kind, given and given.data, room and room.data, op, elements * scale, root,
                distance, shared, counts, incoming, lanes, list(parts), name, _caller(),
            )  # fmt: skip
        except Error as error:
            raise self._fabric._told(error) from None
        except TypeError:
            raise unfit(array, out) from None
        operation = Operation(self._fabric, begun, out)
        return operation.wait() if wait else operation


class Fabric:
    """This rank among the ranks of its gang; join() makes it."""

    def __init__(
        self,
        timeout: float,
        streams: int = 1,
        checksums: bool = True,
        encrypt: bool = False,
        transport: str | None = None,
        tune: str | None = None,
    ) -> None:
        self.timeout = timeout
        self._core = _core.Fabric.open(timeout, transport or "", streams, checksums, encrypt, tune)
        self.rank: int = self._core.rank
        self.size: int = self._core.size
        self._under_way: list[Operation] = []
        self.copied_bytes = 0  # by adopt(), since we joined
        self.world: Group
        self.rejoin(timeout)

    def rejoin(self, timeout: float | None = None) -> None:
        """Take part in the present epoch, or the next when that is over; waits for all ranks.

        Groups of earlier epochs are over: `world` is a new one. So it is when all ranks call this
        in an epoch that goes on.
        """
        with self._telling():
            self._core.join(self.timeout if timeout is None else timeout)
        self.world = Group(self, self._core.world())

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def tuning(self) -> dict[str, Any]:
        """What was chosen for this machine, the same for all ranks, and its `origin`: defaults,
        cached, or measured by this program. No result depends on it.
        """
        return self._core.tuning

    @property
    def lost(self) -> list[int]:
        """Ranks that died since we joined, as far as is known."""
        return self._core.lost()

    def group(self, ranks: Sequence[int], name: str = "") -> Group:
        """Some ranks, in this order; each of them calls this, with the same name. All make groups
        of the same ranks in the same order: who does not is told what the others asked for.
        """
        with self._telling():
            return Group(self, self._core.group(list(ranks), name or f"{list(ranks)}", _caller()))

    def empty(self, shape, dtype: Any = "f32"):
        """A NumPy array in the heap, with whatever was there before.

        dtype is a name of the fabric (f32, bf16, u8), or a dtype of NumPy, ml_dtypes or torch.
        """
        dims, numpys = as_shape(shape), numpy_dtype(dtype)
        with self._telling():
            flat = self._core.empty(bytes_for(dims, numpys.itemsize))
        return flat[: math.prod(dims) * numpys.itemsize].view(numpys).reshape(dims)

    def zeros(self, shape, dtype: Any = "f32"):
        array = self.empty(shape, dtype)
        array.reshape(-1).view("uint8").fill(0)
        return array

    def adopt(self, array):
        """The same in the heap, as NumPy's array, for calls that then need no copy.

        What is contiguous in the heap already is given back. Anything else is copied, once, which
        `copied_bytes` counts and a CopyWarning tells.
        """
        seen = see(array)
        numpys = _numpy_dtype_of(array, seen.kind)
        shape = tuple(getattr(array, "shape", getattr(seen.data, "shape", (seen.elements,))))
        if not _is_numpy(array) or array.flags.c_contiguous:
            contiguous = getattr(array, "contiguous", lambda: array)()  # torch's; else it is
            flat = bytes_of(contiguous)
            if self._core.holds(flat) and not immutable(array):
                return array if _is_numpy(array) else flat.view(numpys).reshape(shape)
            copy = self.empty(shape, numpys)
            copy.reshape(-1).view("uint8")[...] = flat
        else:
            copy = self.empty(shape, numpys)
            copy[...] = array
        self.copied_bytes += copy.nbytes
        words = f"{copy.nbytes} bytes were copied into the heap; fabric.empty() makes arrays there"
        warnings.warn(words, CopyWarning, stacklevel=2)
        return copy

    def holds(self, array) -> bool:
        """Whether this array lies in the heap, so that no call copies it."""
        return self._core.holds(see(array).data)

    def send(self, array, to: int, tag: int = 0, *, priority: str = "normal", wait=True):
        """Bytes to one rank, which calls receive() with this tag; done when it has them.

        Between hosts what is "urgent" overtakes what is "normal", and that what is "bulk".
        """
        to, tag = check_index("to", to, MOST_RANKS), check_index("tag", tag, MOST_TAGS)
        return self._parcel(_core.fabric_send, array, array, wait, to, tag, priority)

    def receive(self, array, source: int, tag: int = 0, *, wait=True):
        """What a rank sends with this tag, into an array of the same size."""
        check_writable(array)
        source = check_index("source", source, MOST_RANKS)
        tag = check_index("tag", tag, MOST_TAGS)
        return self._parcel(_core.fabric_receive, array, array, wait, source, tag)

    def notify(self, to: int, tag: int = 0, *, wait=True):
        """A message of no bytes; the other rank calls await_notice()."""
        return self.send(self.empty(0, "u8"), to, tag, priority="urgent", wait=wait)

    def await_notice(self, source: int, tag: int = 0, *, wait=True):
        return self.receive(self.empty(0, "u8"), source, tag, wait=wait)

    def region(self, array) -> Region:
        """Shows an array of the heap to other ranks, also one that lies apart."""
        seen = see(array)
        if not seen.kind.name:
            words = f"a region is of numbers, not {seen.kind.text}; show a view of its bytes"
            raise Error(words, "invalid")
        try:
            with self._telling():
                rank, offset, itemsize, shape, strides = _core.fabric_region(self._core, seen.data)
        except TypeError:
            raise unfit(array) from None
        return Region(rank, offset, itemsize, tuple(shape), tuple(strides), seen.kind.name)

    def get(self, region: Region, out=None, *, priority: str = "normal", wait=True):
        """What lies there now, without the help of its rank; an array of the heap, or `out`."""
        out = self.empty(region.shape, region.dtype) if out is None else out
        check_writable(out)
        where = astuple(region)[:-1]
        return self._parcel(_core.fabric_get, out, out, wait, where, priority)

    def put(self, array, region: Region, *, priority: str = "normal", wait=True):
        """Writes to a contiguous region; done when the bytes are there. notify() who shall know."""
        where = astuple(region)[:-1]
        return self._parcel(_core.fabric_put, array, region, wait, where, priority)

    def _parcel(self, begin, array, result, wait, *words):
        given = see(array).data
        try:
            with self._telling():
                begun = begin(self._core, given, *words, _caller())
        except TypeError:
            raise unfit(array) from None
        operation = Operation(self, begun, result)
        if wait:
            return operation.wait()
        self._under_way = [one for one in self._under_way if one._lasts()]
        self._under_way.append(operation)  # also when nobody waits for it
        return operation

    def _told(self, error: Error) -> Error:
        """The exception that fits."""
        if error.code == "unavailable":
            return PeerLost(str(error), self._core.lost())
        if error.code == "not_found":
            return Finished(str(error), "not_found")
        return TimedOut(str(error), "deadline") if error.code == "deadline" else error

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise self._told(error) from None


_joined: Fabric | None = None


def join(
    timeout: float = TIMEOUT_S,
    *,
    transport: str | None = None,
    streams: int = 1,
    checksums: bool = True,
    encrypt: bool = False,
    tune: str | None = None,
) -> Fabric:
    """This process's fabric: waits until all ranks of the gang have come.

    `timeout` is that of every wait. `transport`, `streams`, `checksums` and `encrypt` are for gangs
    on several hosts, and the same for all of their ranks: what is between them, "tcp" or "ucx"
    (else what TUTTI_FABRIC_TRANSPORT says, else tcp), connections between two of them, whether what
    travels has checksums, and whether it is encrypted. `tune` is for rank 0 to say: "auto" uses
    what was measured before, else measures in the first large all_reduce; "now" measures here;
    "off" does neither. Without, TUTTI_FABRIC_TUNE says it. Calling join() again gives the same one.
    """
    global _joined
    if _joined is None:
        _joined = Fabric(timeout, streams, checksums, encrypt, transport, tune)
        atexit.register(_joined._core.leave)
        os.register_at_fork(after_in_child=_forked)
    return _joined


class _ParentsFabric:
    def __getattr__(self, name: str):
        raise Error("this process was forked from a rank: the fabric is its parent's", "invalid")


def _forked() -> None:
    if _joined is not None:
        _joined._core = _joined.world._group = _ParentsFabric()


def _moved_as(kind: str, given: Seen | None, room: Seen | None, op: str, dtype: str):
    """(type, how many of its elements are one of the arrays') for the runtime."""
    lead = room or given
    if lead is None:
        return "f32", 1
    if given and room and given.kind.text != room.kind.text:
        words = f"input and output are of different types: {given.kind.text}, {room.kind.text}"
        raise Error(words, "invalid")
    if kind in ("all_reduce", "reduce_scatter"):
        return type_to_reduce(lead.kind, op, dtype), 1
    name = lead.kind.name
    return ("u8", lead.kind.itemsize) if not name or name in COMPLEX else (name, 1)


def _is_numpy(array) -> bool:
    return hasattr(array, "flags") and hasattr(array, "__array_interface__")


def _numpy_dtype_of(array, kind):
    """For a copy: as it is if it is NumPy's."""
    dtype = getattr(array, "dtype", None)
    return dtype if hasattr(dtype, "isnative") else numpy_dtype(kind.name or kind.text)


def whole_lanes(lanes: int, holders: int, holder: int) -> list[tuple[int, int]]:
    """The lanes of a holder when all are dealt evenly, as (first, count) that may be joined."""
    return _core.whole_lanes(lanes, holders, holder)


def _by_name(plan: Plan, given, what: str) -> dict[str, list[Any]]:
    """Of every tensor of a plan, as many arrays as it has dtypes, or Nones."""
    if not plan.named:
        given = {plan.names[0]: given}
    elif given is None:
        given = {}
    if unknown := [name for name in given if name not in plan.names]:
        raise Error(f"{what} has '{unknown[0]}', which is not in the plan", "invalid")
    found = {}
    for name in plan.names:
        count, some = len(plan.dtypes(name)), given.get(name)
        several = list(some) if isinstance(some, tuple | list) else [some] * (some is not None)
        found[name] = several or [None] * count
        if len(found[name]) != count:
            words = f"{what} of '{name}' is {len(several)} arrays, but it has {count} dtypes"
            raise Error(f"{words}; give a tuple of {count}", "invalid")
    return found


def _elements(array) -> int:
    return see(array).elements


def _same_size(array, out) -> None:
    if _elements(array) != _elements(out):
        raise Error(f"{_elements(array)} elements do not fit {_elements(out)}", "invalid")


def _handed(array):
    """What the runtime takes of an array, or None."""
    return None if array is None else see(array).data


def _caller() -> str:
    """Where the user's code called, for those who wonder why we wait."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
