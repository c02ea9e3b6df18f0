"""Layouts, plans and reshards from Python: against NumPy, and with real processes."""

import numpy as np
import pytest
import tutti
from fabric_test import lines_of, ranks
from tutti.fabric import Copy, Layout, Mesh, plan

MESH = Mesh({"fsdp": 4, "tp": 2})


def test_a_layout_tells_what_each_rank_holds() -> None:
    layout = Layout((10, 6), MESH, {0: "fsdp", 1: "tp"})
    assert layout.box(3) == (slice(2, 5), slice(3, 6))
    assert layout.shape_on(3) == (3, 3)
    assert layout.box(8) is None and layout.shape_on(8) is None
    assert repr(layout) == (
        "<tutti.fabric.Layout (10 by fsdp, 6 by tp) on fsdp=4 tp=2 of ranks 0-7>"
    )
    assert layout == Layout([10, 6], Mesh({"fsdp": 4, "tp": 2}), {1: ["tp"], 0: ["fsdp"]})
    assert layout != Layout((10, 6), MESH, {0: "fsdp"}) and len({layout, layout}) == 1
    assert Layout(10, MESH, {0: ("fsdp", "tp")}).shape_on(0) == (1,)
    assert Layout(10_000, MESH, {0: "tp"}, chunk={0: 4096}).shape_on(0) == (4096,)
    assert Layout(10, MESH, {0: "tp"}, bounds={0: [0, 9, 10]}).shape_on(1) == (1,)
    sums = Layout(10, MESH, {0: "tp"}, partial="fsdp")
    assert (sums.lanes, sums.replicas) == (4, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mesh({"a": 2}, [0]), "is of 2 ranks, not of the 1 that were given"),
        (lambda: Layout((4,), MESH, {0: "ftp"}), "has no axis 'ftp'; did you mean 'tp'"),
        (lambda: Layout((4,), MESH, {2: "tp"}), "no dimension 2"),
        (lambda: Layout((4,), MESH, {0: "tp"}, bounds={0: [0, 4]}), "3 numbers that ascend"),
        (lambda: Layout((4,), MESH, partial="tp", op="product"), "not 'product'"),
        (lambda: plan(Layout(4, MESH), Layout(5, MESH)), "one tensor have one shape"),
        (lambda: plan(Layout(4, MESH), Layout(4, MESH), "f8"), "no type of the fabric"),
    ],
)
def test_nonsense_is_refused_with_words(make, words: str) -> None:
    with pytest.raises(tutti.Error, match=words):
        make()


def test_a_plan_lists_its_copies() -> None:
    rows = Layout((4, 4), Mesh({"x": 2}), {0: "x"})
    columns = Layout((4, 4), Mesh({"x": 2}, [1, 2]), {1: "x"})
    made = plan(rows, columns, "bf16")
    assert made.received(2) == [
        Copy("tensor", (0,), 2, (slice(0, 2), slice(2, 4))),
        Copy("tensor", (1,), 2, (slice(2, 4), slice(2, 4))),
    ]
    assert [copy.target for copy in made.sent(1)] == [1, 2]
    assert made.sent(2) == [] == made.received(0)
    assert made.totals == (4, 24, 8, 16, 16)
    assert made.hash == plan(rows, columns, "bf16").hash != plan(rows, columns).hash
    near = plan(Layout(4, Mesh({"dp": 3})), Layout(4, Mesh({"dp": 1}, [3])), hosts=[0, 0, 1, 1])
    assert near.received(3)[0].sources == (2,)


def test_plans_executed_by_numpy_bring_the_tensor_over() -> None:
    """The one-line reference: copy slices of what each holds."""
    whole = np.arange(7 * 9 * 5).reshape(7, 9, 5)
    source = Layout(whole.shape, Mesh({"a": 3, "b": 2}), {1: "a", 2: "b"})
    target = Layout(whole.shape, Mesh({"c": 2, "d": 4}, range(2, 10)), {0: ("d", "c")})
    made = plan(source, target)
    for rank in target.mesh.ranks:
        got = np.full(whole.shape, -1)
        for copy in made.received(rank):
            (sender,) = copy.sources
            held = np.full(whole.shape, -2)
            held[source.box(sender)] = whole[source.box(sender)]
            got[copy.part] = held[copy.part]
        box = target.box(rank)
        assert (got[box] == whole[box]).all()


def test_ranks_reshard_arrays_of_numpy_between_any_layouts() -> None:
    script = """
from tutti.fabric import Layout, Mesh, plan
whole = np.arange(60 * 35, dtype=np.float32).reshape(60, 35)
tiles = Layout(whole.shape, Mesh({"fsdp": 2, "tp": 2}), {0: "fsdp", 1: "tp"})
rows = Layout(whole.shape, Mesh({"x": 3}, [4, 1, 2]), {0: "x"}, bounds={0: [0, 7, 7, 60]})
mine = np.ascontiguousarray(whole[tiles.box(rank)]) if tiles.box(rank) else None
got = world.reshard(mine, plan(tiles, rows))
if rows.box(rank) is None:
    assert got is None
else:
    assert fabric.holds(got) and (got == whole[rows.box(rank)]).all()
back = None if mine is None else np.empty_like(mine)
pending = world.reshard(got, plan(rows, tiles), out=back, wait=False)
assert pending.wait() is back and (mine is None or (back == mine).all())

# Summands become their sum; a state moves together, moments in their own type.
dp = Mesh({"dp": 4})
total = world.reshard(np.full(3, rank, "f4") if rank < 4 else None,
                      plan(Layout(3, dp, partial="dp"), Layout(3, Mesh({"all": 5}))))
assert total.tolist() == [6, 6, 6]
half, full = Layout(8, dp, {0: "dp"}), Layout(8, Mesh({"all": 5}))
state = plan({"w": (half, full, ("f16", "f64")), "b": (full, full)})
held = {"b": np.full(8, 3, "f4")}
if rank < 4: held["w"] = (np.full(2, rank, "f2"), np.full(2, rank / 3))
got = world.reshard(held, state)
assert got["w"][0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and got["b"][0] == 3
assert got["w"][1].tolist() == [r / 3 for r in (0, 0, 1, 1, 2, 2, 3, 3)]
print("well")
"""
    assert lines_of(ranks(5, script)) == [f"[{rank}] well" for rank in range(5)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("world.reshard(np.zeros(3, 'f4'), made)", "holds [0:5] of tensor, an array of shape [5]"),
        ("world.reshard(np.zeros(5), made)", "has elements of 8 bytes"),
        ("world.reshard(None, made)", "brings no input"),
        ("world.reshard(np.zeros(10, 'f4')[::2], made)", "contiguous"),
        ("world.reshard((np.zeros(5, 'f4'),) * 2, made)", "2 arrays, but it has 1 dtypes"),
        ("world.reshard({'x': None}, plan({'w': (one, two)}))", "'x', which is not in the plan"),
        ("world.reshard(np.zeros(5, 'f4'), plan(one, far))", "rank 7 has a part"),
    ],
)
def test_bad_reshards_say_what_is_wrong(call: str, words: str) -> None:
    script = f"""
from tutti.fabric import Layout, Mesh, plan
one = Layout(10, Mesh({{"x": 2}}), {{0: "x"}})
two = Layout(10, Mesh({{"x": 2}}))
far = Layout(10, Mesh({{"x": 2}}, [0, 7]))
made = plan(one, two)
try:
    {call}
except tutti.Error as error:
    print(error.code, error)
"""
    done = lines_of(ranks(2, script))
    assert len(done) == 2 and words in done[0], done


def test_a_rank_that_dies_ends_a_reshard_for_the_others() -> None:
    script = """
import signal
from tutti.fabric import Layout, Mesh, plan
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the keeper ends the others soon
rows = Layout((300, 300), Mesh({"x": 3}), {0: "x"})
columns = Layout((300, 300), Mesh({"x": 3}), {1: "x"})
mine = np.zeros((100, 300), "f4")
if rank == 2:
    world.reshard(mine, plan(rows, columns))
    os.kill(os.getpid(), signal.SIGKILL)
world.reshard(mine, plan(rows, columns))
try:
    world.reshard(mine, plan(rows, columns))
except tutti.fabric.PeerLost as lost:
    print(f"rank {rank} lost 2: {2 in lost.ranks}", flush=True)  # others may have left too
"""
    done = ranks(3, script)
    assert done.returncode != 0
    assert sorted(done.stdout.splitlines()) == [f"[{r}] rank {r} lost 2: True" for r in (0, 1)]
