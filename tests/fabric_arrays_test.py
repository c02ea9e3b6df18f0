"""Arrays of any type and any library, in and out of the fabric."""

import importlib.util

import pytest
from fabric_tools import lines_of, ranks

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="no jax here")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
needs_ml_dtypes = pytest.mark.skipif(
    importlib.util.find_spec("ml_dtypes") is None, reason="no ml_dtypes here"
)

# Only the protocol, as a library of one's own may have it.
BARE = """
class Bare:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **words): return self.array.__dlpack__(**words)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
"""


def well(count: int, script: str) -> None:
    done = ranks(count, script + '\nprint("well")\n')
    assert lines_of(done) == [f"[{rank}] well" for rank in range(count)]


def test_arrays_of_any_type_are_moved_and_keep_their_bits() -> None:
    script = """
types = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "c8", "c16",
         ">f4", ">i8", "M8[s]", "S5", "V3", "g", [("a", "f4"), ("b", "i8"), ("c", "u1")]]
joined = lambda arrays: np.frombuffer(b"".join(a.tobytes() for a in arrays), dtype)
same = lambda a, b: a.tobytes() == b.tobytes()
for each in types:
    dtype = np.dtype(each)
    for count in (3, 3000):
        bits = [np.random.default_rng(r).integers(0, 2, count * dtype.itemsize, np.uint8)
                for r in range(size)]
        own, peer = bits[rank].view(dtype), bits[1 - rank].view(dtype)
        both = joined(bits)
        out = np.empty(2 * count, dtype)
        assert same(world.all_gather(own, out), both), (each, count)
        assert same(world.broadcast(own.copy(), root=1), bits[1].view(dtype))
        assert same(world.gather(own, out, root=0), both) or rank == 1
        half = np.empty(count, dtype)
        assert same(world.scatter(both if rank == 0 else None, half), own)
        assert same(world.shift(own, half), peer)
        assert same(world.all_to_all(both, out), joined([own, own]))
        counts, incoming = ([1, 2], [1, 1]) if rank == 0 else ([1, 1], [2, 2])
        some = np.empty(sum(incoming), dtype)
        if rank == 1: incoming = [2, 1]; some = np.empty(3, dtype)
        world.all_to_all(own[:sum(counts)], some, counts, incoming)
        first = [b.view(dtype) for b in bits]
        wanted = [first[0][:1], first[1][:1]] if rank == 0 else [first[0][1:3], first[1][1:2]]
        assert same(some, joined(wanted)), (each, count)
        sent = fabric.send(own, 1 - rank, wait=False)
        assert same(fabric.receive(half, 1 - rank), peer)
        sent.wait()
        held = fabric.adopt(own)
        assert held.dtype == dtype and same(held, own) and fabric.holds(held)
        if each in types[:14]:
            shown = world.regions(held)
            assert same(fabric.get(shown[1 - rank]), peer)
            fabric.put(own, shown[rank])
            assert same(fabric.get(shown[rank], out=half), own)
        world.barrier()
"""
    well(2, script)


def test_sums_of_all_integers_wrap_and_their_extremes_are_right() -> None:
    script = """
for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
    limits, told = np.iinfo(name), {"dtype": "u16"} if name == "uint16" else {}
    for count in (3, 5000):
        each = [np.random.default_rng(r).integers(limits.min, limits.max, count, name, True)
                for r in range(size)]
        with np.errstate(over="ignore"):
            total = sum(each[1:], each[0].copy()).astype(name)
        own = each[rank]
        assert (world.all_reduce(own.copy(), **told) == total).all(), name
        assert (world.all_reduce(own.copy(), op="max", **told) == np.maximum.reduce(each)).all()
        assert (world.all_reduce(own.copy(), op="min", **told) == np.minimum.reduce(each)).all()
truth = np.array([rank == 0, True, False])
assert world.all_reduce(truth.copy(), op="max").tolist() == [True, True, False]
assert world.all_reduce(truth.copy(), op="min").tolist() == [False, True, False]
"""
    well(3, script)


@needs_ml_dtypes
def test_bf16_of_ml_dtypes_keeps_its_bits_and_is_summed() -> None:
    script = """
import ml_dtypes
bf16 = np.dtype(ml_dtypes.bfloat16)
held = fabric.adopt(np.full(3, 1.5, bf16))
assert held.dtype == bf16 and held.view(np.uint16).tolist() == [0x3FC0] * 3
for count in (3, 5000):
    for array in (np.full(count, 1.5, bf16), fabric.empty(count, bf16)):
        array[...] = 1.5
        assert (world.all_reduce(array) == 1.5 * size).all()
assert fabric.get(world.regions(held)[0], out=np.empty(3, bf16)).tolist() == [1.5] * 3
eighths = np.arange(4).astype(ml_dtypes.float8_e4m3fn)
assert world.shift(eighths, np.zeros_like(eighths)).tolist() == [0, 1, 2, 3]
"""
    well(2, script)


def test_rooms_are_made_of_any_name_of_a_type() -> None:
    script = """
for dtype, wanted in ((np.float32, "float32"), (np.dtype("i2"), "int16"), ("uint64", "uint64"),
                      ("bf16", "uint16"), ("i8", "int8"), (bool, "bool"), ("c64", "complex64"),
                      (">f4", None), ("f8", None), (float, "float64")):
    try:
        array = fabric.zeros((2, 3), dtype)
        assert array.dtype == wanted and fabric.holds(array) and not array.any()
    except tutti.Error as error:
        assert wanted is None and "no type of the fabric" in str(error), error
pairs = np.dtype([("a", "f4"), ("b", "i8")])
assert fabric.empty(5, pairs).dtype == pairs
assert tutti.vault.tensor(fabric, "truths", 3, bool)[0].dtype == bool
assert tutti.vault.tensor(fabric, "many", 3, np.uint64)[0].dtype == np.uint64
"""
    well(1, script)


def test_adopting_copies_once_and_says_so() -> None:
    script = """
import warnings
warnings.simplefilter("always")
foreign = np.arange(6, dtype=np.float64).reshape(2, 3)
with warnings.catch_warnings(record=True) as told:
    copy = fabric.adopt(foreign)
    turned = fabric.adopt(foreign.T)
assert [str(each.message)[:16] for each in told] == ["48 bytes were co"] * 2
assert told[0].category is tutti.fabric.CopyWarning and told[0].filename == "<string>"
assert fabric.copied_bytes == 96 and (copy == foreign).all() and (turned == foreign.T).all()
warnings.simplefilter("error", tutti.fabric.CopyWarning)
assert fabric.adopt(copy) is copy and np.shares_memory(fabric.adopt(copy[1]), copy)
try:
    fabric.adopt(foreign)
    raise SystemExit("no warning")
except tutti.fabric.CopyWarning:
    pass
"""
    well(1, script)


def test_objects_of_dlpack_alone_are_arrays() -> None:
    script = (
        BARE
        + """
x = np.ones((2, 3), np.float32)
world.all_reduce(Bare(x))
assert (x == size).all()
assert (fabric.adopt(Bare(x)) == x).all() and fabric.adopt(Bare(x)).shape == (2, 3)
held = fabric.zeros(4, "c64")
assert np.shares_memory(fabric.adopt(Bare(held)), held)
assert fabric.region(Bare(held)).dtype == "c64"
frozen = np.ones(3); frozen.flags.writeable = False
out = np.empty(3)
assert (world.all_reduce(Bare(frozen), out=out) == size).all()
try:
    world.all_reduce(Bare(frozen))
    raise SystemExit("written")
except tutti.Error as error:
    assert "read-only" in str(error) or "can be written" in str(error), error
assert (frozen == 1).all()
"""
    )
    well(2, script)


@needs_jax
def test_arrays_of_jax_are_adopted_and_never_written_to() -> None:
    script = """
os.environ["JAX_PLATFORMS"] = "cpu"
import jax.numpy as jnp
for dtype in (jnp.float32, jnp.bfloat16, jnp.int8, jnp.bool_, jnp.complex64):
    x = jnp.ones((2, 3), dtype)
    held = fabric.adopt(x)
    assert held.shape == (2, 3) and held.dtype == x.dtype and (held == np.asarray(x)).all()
    assert fabric.holds(held) and not fabric.holds(x)
x = jnp.ones(5000, jnp.float32)
for call in (lambda: world.all_reduce(x), lambda: world.broadcast(x),
             lambda: fabric.receive(x, 1 - rank), lambda: world.shift(x, x)):
    try:
        call()
        raise SystemExit("written")
    except tutti.Error as error:
        assert "can be written" in str(error), error
out = fabric.empty(5000)
assert (world.all_reduce(x, out=out) == size).all() and (x == 1).all()
"""
    well(2, script)


# What torch's tensors tell of themselves.
TENSOR = (
    BARE
    + """
class Device:
    def __init__(self, name): self.type = self.name = name
    def __str__(self): return self.name
class Tensor(Bare):
    requires_grad = False
    device = Device("cpu")
    shape, dtype = property(lambda self: self.array.shape), property(lambda self: self.array.dtype)
    def cpu(self): return self
"""
)

REFUSES = """
def refused(call, *words):
    try:
        call()
        raise SystemExit("written")
    except tutti.Error as error:
        assert error.code == "invalid" and all(word in str(error) for word in words), error
"""


def test_tensors_that_require_a_gradient_are_read_but_not_written_to() -> None:
    script = """
leaf = Tensor(np.ones(5, np.float32))
leaf.requires_grad = True
out = np.empty(5, np.float32)
assert (world.all_reduce(leaf, out=out) == size).all()
for call in (lambda: world.all_reduce(leaf), lambda: world.all_reduce(out, out=leaf),
             lambda: world.broadcast(leaf), lambda: world.buckets([leaf]),
             lambda: fabric.receive(leaf, 1 - rank)):
    refused(call, "Tensor requires its gradient", "detach()", "torch.no_grad()")
assert (leaf.array == 1).all()
"""
    well(2, TENSOR + REFUSES + script)


def test_tensors_that_are_elsewhere_are_refused_with_the_name_of_the_place() -> None:
    script = """
class Away(Tensor):
    def __dlpack__(self, **words): raise ValueError("no DLPack of that")
    def __dlpack_device__(self): raise ValueError("no DLPack of that")
away = Away(np.ones(5, np.float32))
for name, words in (("meta", "meta device has no memory"), ("cuda:1", "is on cuda:1"),
                    ("cuda:1", "with .cpu()")):
    away.device = Device(name)
    for call in (lambda: world.all_reduce(away), lambda: fabric.send(away, 1 - rank),
                 lambda: fabric.adopt(away), lambda: fabric.region(away),
                 lambda: world.all_reduce_lanes([(0, 1, away)], 2, np.ones(5, np.float32))):
        refused(call, "Away", words)
"""
    well(2, TENSOR + REFUSES + script)


@needs_torch
def test_parameters_of_torch_are_written_to_where_torch_itself_may() -> None:
    script = """
import torch
leaf = torch.ones(5, requires_grad=True)
derived = leaf * 1
for tensor in (leaf, derived):
    refused(lambda: world.all_reduce(tensor), "requires its gradient", "detach()")
    refused(lambda: world.broadcast(tensor), "requires its gradient", "torch.no_grad()")
assert (leaf == 1).all()
with torch.no_grad():
    world.all_reduce(leaf)
assert (leaf == size).all()
world.all_reduce(leaf.detach())
assert (leaf == size * size).all()
refused(lambda: world.all_reduce(torch.ones(5, device="meta")), "meta device has no memory")
"""
    well(2, REFUSES + script)


def test_arrays_that_are_not_what_a_layout_says_are_refused() -> None:
    script = """
from tutti.fabric import Layout, Mesh, plan
mesh = Mesh({"x": 2})
rows, columns = Layout((4, 6), mesh, {0: "x"}), Layout((4, 6), mesh, {1: "x"})
full = np.arange(24, dtype=np.float32).reshape(4, 6)
move = plan(rows, columns)
mine = full[rows.box(rank)].copy()
for given, out in ((mine.T.copy(), None), (mine.ravel(), None), (mine, np.empty((3, 4), "f4"))):
    try:
        world.reshard(given, move, out)
        raise SystemExit("moved")
    except tutti.Error as error:
        assert "of shape [" in str(error) and "shape_on" in str(error), error
mine.flags.writeable = False
assert (world.reshard(mine, move) == full[columns.box(rank)]).all()
"""
    well(2, script)


def test_operations_are_awaited_while_other_tasks_go_on() -> None:
    script = """
import asyncio
turns = 0
async def others():
    global turns
    while True:
        turns += 1
        await asyncio.sleep(0)
async def main():
    task = asyncio.create_task(others())
    if rank == 1:
        await asyncio.sleep(0.3)
    x, y = np.ones(5000, np.float32), np.ones(70000)
    first, second = world.all_reduce(x, wait=False), world.all_reduce(y, op="max", wait=False)
    seen = turns
    assert await first is x and (x == size).all() and await second is y
    assert turns > seen + 10 or rank == 1
    got = np.empty(3)
    sent = fabric.send(np.full(3, rank), 1 - rank, wait=False)
    await asyncio.gather(sent, fabric.receive(got.view(int), 1 - rank, wait=False))
    assert (got.view(int) == 1 - rank).all()
    fabric.timeout = 0.2
    if rank == 0:
        try:
            await world.barrier(wait=False)
            raise SystemExit("nobody was waited for")
        except TimeoutError as error:
            assert "rank 1" in str(error), error
    task.cancel()
    fabric.timeout = 60
asyncio.run(main())
if rank == 1: time.sleep(0.5); world.barrier()
"""
    well(2, script)
