"""How tensors lie over ranks, and what goes where when that changes.

    mesh = Mesh({"fsdp": 4, "tp": 2})                           # ranks 0 to 7
    tiles = Layout((4096, 4096), mesh, {0: "fsdp", 1: "tp"})
    rows = Layout((4096, 4096), Mesh({"x": 4}, range(4)), {0: "x"})
    local = fabric.world.reshard(local, plan(tiles, rows))      # in every rank

Values, for any process: only Group.reshard() needs a fabric. docs/fabric.md is the manual.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tutti import _core

__all__ = ["Copy", "Layout", "Mesh", "Plan", "Totals", "plan"]

Slices = tuple[slice, ...]


class Mesh:
    """Ranks along named axes, the last varying fastest."""

    def __init__(self, axes: Mapping[str, int], ranks: Sequence[int] | None = None) -> None:
        self.axes = dict(axes)
        self._core = _core.Mesh.make(
            list(self.axes.items()), None if ranks is None else list(ranks)
        )
        self.ranks: list[int] = self._core.ranks
        self.size = len(self.ranks)

    def __repr__(self) -> str:
        return f"<tutti.fabric.Mesh {self._core.text()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._core.equals(other._core)

    def __hash__(self) -> int:
        return self._core.hash()


class Layout:
    """How a tensor lies over a mesh: each rank holds a box of it, contiguous, in row-major order.

    `shards` says which axis, or which axes together, split a dimension; pieces are as even as can
    be, and begin at multiples of `chunk` of that dimension, or at its `bounds`, of which the last
    is the end. Over `partial` axes the tensor is the sum (mean, max, min) of what the ranks hold.
    All other axes replicate.
    """

    def __init__(
        self,
        shape: Sequence[int] | int,
        mesh: Mesh,
        shards: Mapping[int, str | Sequence[str]] | None = None,
        *,
        chunk: Mapping[int, int] | None = None,
        bounds: Mapping[int, Sequence[int]] | None = None,
        partial: str | Sequence[str] = (),
        op: str = "sum",
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.mesh = mesh
        shards, chunk, bounds = shards or {}, chunk or {}, bounds or {}
        split = [
            (dimension, _names(shards.get(dimension, ())), chunk.get(dimension, 1),
             list(bounds.get(dimension, ())))
            for dimension in sorted({*shards, *chunk, *bounds})
        ]  # fmt: skip
        self._core = _core.Layout.make(list(self.shape), mesh._core, split, _names(partial), op)

    @property
    def lanes(self) -> int:
        """Ranks that hold summands of an element."""
        return self._core.lanes

    @property
    def replicas(self) -> int:
        """Ranks that hold the same."""
        return self._core.replicas

    def box(self, rank: int) -> Slices | None:
        """What a rank holds, as slices of the tensor; None if it is not in the mesh."""
        ranges = self._core.box(rank)
        return None if ranges is None else _slices(ranges)

    def shape_on(self, rank: int) -> tuple[int, ...] | None:
        """The shape of what a rank holds; None if it is not in the mesh."""
        box = self.box(rank)
        return None if box is None else tuple(part.stop - part.start for part in box)

    def __repr__(self) -> str:
        return f"<tutti.fabric.Layout {self._core.text()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._core.equals(other._core)

    def __hash__(self) -> int:
        return self._core.hash()


class Copy(NamedTuple):
    """A slice of a tensor on its way."""

    name: str
    sources: tuple[int, ...]  # one rank; one for each lane, to be folded; or none, for zeros
    target: int  # rank
    part: Slices  # of the tensor


class Totals(NamedTuple):
    copies: int
    moved_bytes: int  # from other ranks
    kept_bytes: int  # from the rank itself
    most_sent_bytes: int  # by one rank
    most_received_bytes: int


class Plan:
    """What goes where; plan() makes it."""

    def __init__(self, moves: Mapping[str, tuple], hosts: Sequence[int], named: bool) -> None:
        self.named = named
        self._moves = {name: _move(*move) for name, move in moves.items()}
        self.names = list(self._moves)
        self._core = _core.Plan.make(
            [(name, source._core, target._core, dtypes)
             for name, (source, target, dtypes) in self._moves.items()],
            list(hosts),
        )  # fmt: skip

    def source(self, name: str) -> Layout:
        return self._moves[name][0]

    def target(self, name: str) -> Layout:
        return self._moves[name][1]

    def dtypes(self, name: str) -> list[str]:
        return self._moves[name][2]

    def received(self, rank: int) -> list[Copy]:
        """What this rank gets, from itself too."""
        return self._copies(rank, False)

    def sent(self, rank: int) -> list[Copy]:
        """What this rank gives, to itself too."""
        return self._copies(rank, True)

    @property
    def totals(self) -> Totals:
        return Totals(*self._core.totals())

    @property
    def hash(self) -> str:
        """Equal for plans of equal layouts."""
        return self._core.hash()

    def _copies(self, rank: int, sent: bool) -> list[Copy]:
        listed = self._core.copies(rank, sent)
        return [Copy(n, tuple(s), t, _slices(ranges)) for n, s, t, ranges in listed]

    def __repr__(self) -> str:
        total = self.totals
        words = f"{total.copies} copies, {total.moved_bytes} bytes from other ranks"
        return f"<tutti.fabric.Plan of {len(self.names)} tensors: {words}>"


def plan(
    source: Layout | Mapping[str, tuple],
    target: Layout | None = None,
    dtype: str | Sequence[str] = "f32",
    *,
    hosts: Sequence[int] = (),
) -> Plan:
    """The slices that bring a tensor from one layout to another, over any ranks.

    Or a state: a mapping of names to (source, target) or (source, target, dtypes). Several dtypes
    are a parameter and what follows it, its optimizer state. `hosts` tells the host of each rank,
    so that slices come from near by. The same plan is made once, and then remembered.
    """
    if isinstance(source, Mapping):
        return Plan(source, hosts, named=True)
    return Plan({"tensor": (source, target, dtype)}, hosts, named=False)


def _move(source, target, dtype="f32") -> tuple[Layout, Layout, list[str]]:
    if not isinstance(source, Layout) or not isinstance(target, Layout):
        raise TypeError("a plan goes from a tutti.fabric.Layout to another")
    return source, target, _names(dtype)


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _slices(ranges: Sequence[tuple[int, int]]) -> Slices:
    return tuple(slice(begin, end) for begin, end in ranges)
