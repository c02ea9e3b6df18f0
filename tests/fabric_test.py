"""The fabric from Python: real processes, real kills."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tutti
from fabric_tools import (
    ENVIRONMENT,
    EVERY_COLLECTIVE,
    PRELUDE,
    digests_of,
    example,
    lines_of,
    ranks,
    start_example,
)
from run_tools import PATIENCE_S, Marked
from run_tools import tutti as run_tutti


def test_arrays_of_the_heap_are_reduced_where_they_lie() -> None:
    script = """
x = fabric.empty((100, 70)); x[...] = rank + 1
assert fabric.holds(x) and not fabric.holds(np.zeros(3, np.float32))
address = x.__array_interface__["data"][0]
assert world.all_reduce(x) is x and x.__array_interface__["data"][0] == address
assert (x == sum(range(1, size + 1))).all()
print("well")
"""
    assert lines_of(ranks(4, script)) == [f"[{rank}] well" for rank in range(4)]


def test_every_collective_moves_what_it_says() -> None:
    assert lines_of(ranks(3, EVERY_COLLECTIVE)) == [f"[{rank}] well" for rank in range(3)]


def test_sums_of_lanes_have_the_same_bits_for_any_number_of_ranks() -> None:
    script = """
lanes = 8
values = [np.random.default_rng(i).standard_normal(5000, np.float32) for i in range(lanes)]
def joined(first, count):
    while count & (count - 1): count += 1
    if count == 1: return values[first].copy()
    left = joined(first, count // 2)
    return left + joined(first + count // 2, count // 2) if first + count // 2 < lanes else left
parts = [(f, n, joined(f, n)) for f, n in tutti.fabric.whole_lanes(lanes, size, rank)]
out = np.empty(5000, np.float32)
world.all_reduce_lanes(parts, lanes, out)
print(f"{tutti.hash64(out):016x}")
"""
    digests = set()
    for count in (1, 2, 3, 4, 5, 8):
        digests |= {line.split()[1] for line in lines_of(ranks(count, script))}
    assert len(digests) == 1


def test_calls_that_differ_are_told_with_both_places() -> None:
    script = """
try:
    world.all_reduce(np.ones(5 + rank, np.float32))
except tutti.Error as error:
    print(error.code, error)
"""
    done = lines_of(ranks(2, script))
    assert "rank 0 all_reduce of 5 f32, sum at <string>:6" in done[0]
    assert "rank 1 all_reduce of 6 f32, sum at <string>:6" in done[0]
    assert done[0].startswith("[0] invalid") and done[1].startswith("[1] invalid")


def test_buckets_sum_many_arrays_in_few_calls() -> None:
    script = """
arrays = [fabric.empty(n) if n % 2 else np.empty(n, np.float32) for n in (3, 1000, 7, 300001, 1)]
buckets = world.buckets(arrays, bytes=100000)
assert buckets.size == 2, buckets.size
for step in range(1, 4):
    for array in arrays: array[...] = step * (rank + 1)
    for i in range(len(arrays)): buckets.ready((i * 2 + rank) % len(arrays))
    buckets.wait()
    assert all((array == step * size * (size + 1) / 2).all() for array in arrays)
try:
    buckets.ready(0); buckets.wait()
except tutti.Error as error:
    assert "tensor 1 of the buckets is not ready" in str(error), error
print("well")
"""
    assert lines_of(ranks(3, script)) == [f"[{rank}] well" for rank in range(3)]


def test_what_a_call_works_on_is_kept_until_it_is_over_and_then_let_go() -> None:
    script = """
import weakref
alone = fabric.group([rank])
def call(array):
    world.all_reduce(array, wait=False)
def bucket(array):
    world.buckets([array]).ready(0)
for begin in (call, bucket):
    for make in (lambda: np.ones(70000, np.float32), lambda: fabric.zeros(70000)):
        if rank == 1:
            fabric.await_notice(0)
        array = make()
        kept = weakref.ref(array)
        begin(array)
        del array
        alone.barrier()  # a call lets go of what is over
        if rank == 0:
            assert kept() is not None, (begin, "gone")
            fabric.notify(1)
        world.barrier()
        alone.barrier()
        assert kept() is None, (begin, "kept")
print("well")
"""
    assert lines_of(ranks(2, script)) == [f"[{rank}] well" for rank in range(2)]


def test_ranks_that_do_not_agree_are_told_what_differs_and_join_again() -> None:
    script = """
def told(call, *words):
    try:
        call()
    except tutti.Error as error:
        assert error.code == "invalid" and all(word in str(error) for word in words), error
        return fabric.rejoin()
    raise AssertionError(words)
shape = (2, 3) if rank else (3, 2)
told(lambda: fabric.world.all_reduce(np.ones(shape, np.float32)), "shape (2, 3)", "shape (3, 2)")
for order in (0, 1):
    call = lambda: fabric.group([0, 1] if rank else [1, 0])
    told(call, "ranks 0, 1 at <string>", "ranks 1, 0 at <string>")
def share():
    shared = fabric.world.shared(100000)
    out = shared if rank else fabric.empty(100000)
    fabric.world.all_reduce(np.ones(100000, np.float32), out=out, shared=True)
told(share, "do not give the same memory for a shared output")
def late():
    if rank == 1: fabric.world.barrier()
    fabric.group([0, 1], "late")
told(late, "for group late of ranks 0, 1 at <string>:", "rank 1 calls barrier at <string>:")
from tutti.fabric import Layout, Mesh, plan
mesh = Mesh({"x": 2})
rows = Layout((4, 6), mesh, {0: "x"})
move = plan(rows, Layout((4, 6), mesh, {1: "x"}) if rank else Layout((4, 6), mesh))
words = "reshard of 1 tensors by plan"
told(lambda: fabric.world.reshard(np.ones((2, 6), np.float32), move), words)
assert fabric.world.all_reduce(np.ones(3, np.float32))[0] == size
assert fabric.group([0, 1]).all_reduce(np.ones(3, np.float32))[0] == size
print("well")
"""
    assert lines_of(ranks(2, script)) == [f"[{rank}] well" for rank in range(2)]


def test_who_rejoins_in_vain_is_told_for_whom(tmp_path: Path) -> None:
    script = f"""
file = {str(tmp_path / "told")!r}
if rank == 0:
    try:
        fabric.rejoin(0.1)
        raise SystemExit("alone")
    except tutti.fabric.TimedOut as late:
        assert "rank 1 (which has not asked for it); `tutti stuck JOB` shows" in str(late), late
    open(file, "w").close()
while not os.path.exists(file):
    time.sleep(0.01)
fabric.rejoin()
fabric.world.barrier()
print("well")
"""
    assert lines_of(ranks(2, script)) == [f"[{rank}] well" for rank in range(2)]


def test_arrays_may_be_whatever_has_a_buffer_read_only_unaligned_or_bits_of_bf16() -> None:
    script = """
import array
values = array.array("f", [1, 2, 3])
world.all_reduce(values)
assert values.tolist() == [size, 2 * size, 3 * size]
raw = bytearray(8)
world.broadcast(raw)
given = np.ones(300000, np.float32)
given.flags.writeable = False
out = np.empty_like(given)
assert (world.all_reduce(given, out=out) == size).all()
odd = np.ndarray(70001, np.float32, bytearray(4 * 70001 + 1), 1)
odd[...] = rank
assert (world.all_reduce(odd, op="max") == size - 1).all()
half = fabric.empty(1000, "bf16")
half[...] = np.float32(1.5).view(np.uint32) >> 16
world.all_reduce(half, dtype="bf16")
assert ((half.astype(np.uint32) << 16).view(np.float32) == 1.5 * size).all()
copy = fabric.adopt(np.arange(12, dtype=np.float32).reshape(3, 4).T)
assert fabric.holds(copy) and copy.tolist()[1] == [1, 5, 9]
print("well")
"""
    assert lines_of(ranks(2, script)) == [f"[{rank}] well" for rank in range(2)]


def test_whoever_does_not_come_is_named() -> None:
    script = """
world.barrier()
if rank == 1: time.sleep(0.5)
try:
    world.barrier(wait=False).wait(timeout=0.1 if rank == 0 else 10)
except TimeoutError as error:
    print(error)
"""
    done = ranks(2, script)
    assert "rank 1 (whose last was call 1, barrier at <string>:5)" in done.stdout


def test_a_stopped_peer_is_waited_for_and_goes_on() -> None:
    script = """
import signal
if rank == 1:
    if os.fork() == 0:
        time.sleep(0.3); os.kill(os.getppid(), signal.SIGCONT); os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
x = np.ones(100000, np.float32)
world.all_reduce(x)
assert (x == 2).all()
"""
    assert lines_of(ranks(2, script)) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("world.all_reduce(np.zeros((4, 4), np.float32).T[1:])", "contiguous"),
        ("world.all_reduce(np.zeros(4, np.complex64))", "view of floats: array.view('float32')"),
        ("world.all_reduce(np.zeros(4, bool))", "op='max' for any"),
        ("world.all_reduce(np.zeros(4, '>f4'))", "newbyteorder"),
        ("world.all_reduce(np.zeros(4, [('a', 'f4'), ('b', 'i4')]))", "moved, not reduced"),
        ("world.broadcast(np.array([None]))", "Python objects"),
        ("world.all_reduce(None)", "an array, not None"),
        ("world.all_reduce(np.zeros(4, np.float32), dtype='bf16')", "not float32"),
        ("world.all_reduce(np.zeros(4, np.float32), out=np.zeros(4, np.int32))", "float32, int32"),
        ("world.broadcast(np.zeros(3, np.float32), root=-1)", "root is 0 or more, not -1"),
        ("world.all_to_all(np.zeros(2), np.zeros(2), [3, -1], [1, 1])", "counts has a negative"),
        ("fabric.send(np.zeros(3), 1 - rank, tag=-1)", "tag is 0 or more, not -1"),
        ("fabric.receive(np.zeros(3), -1)", "source is 0 or more, not -1"),
        ("fabric.empty((1 << 40, 1 << 40))", "do not fit"),
        ("fabric.empty(-1)", "no array of shape (-1,)"),
        ("fabric.empty('many')", "is no shape"),
        ("fabric.empty(3, object)", "Python objects"),
        ("tutti.vault.tensor(fabric, 'a', (-3, 4))", "no array of shape (-3, 4)"),
        ("tutti.vault.tensor(fabric, 'a', (1 << 62, 8))", "do not fit"),
        ("tutti.vault.tensor(fabric, 'a', 3, 'c64')", "keeps numbers"),
        ("world.all_reduce(np.zeros(4, np.float32), op='product')", "not 'product'"),
        ("world.reduce_scatter(np.zeros(3, np.float32), np.zeros(2, np.float32))", "counts"),
        ("world.broadcast(np.zeros(3, np.float32), root=9)", "no member 9"),
        ("world.all_reduce(np.zeros(3), out=np.zeros(4))", "3 elements do not fit 4"),
        ("world.all_reduce([1.0, 2.0])", "a list is no array"),
        ("world.all_reduce(np.broadcast_to(np.float32(1), 1))", "can be written"),
        ("world.all_reduce(np.zeros(3, np.uint16))", "dtype='bf16'"),
        ("world.all_gather(np.zeros(3), np.zeros(5))", "gives 6 elements"),
        ("world.all_gather(np.zeros(30000), np.zeros(50000))", "gives 60000 elements"),
        ("world.all_to_all(np.zeros(4), np.zeros(3))", "room for 3"),
        ("world.all_to_all(np.zeros(3), np.zeros(4), [2, 2], [2, 2])", "its input has 3"),
        ("fabric.send(np.zeros(3), 2)", "no rank 2"),
        ("fabric.region(np.zeros(3))", "adopt() it"),
        ("fabric.put(np.zeros(2), fabric.region(fabric.zeros((2, 2), 'f64')[:, 0]))", "contiguous"),
        ("fabric.empty(1 << 60)", "do not fit"),
        ("fabric.group([0, 0])", "different ranks"),
        ("fabric.empty(4, 'f8')", "no type of the fabric"),
    ],
)
def test_bad_calls_say_what_is_wrong(call: str, words: str) -> None:
    script = f"""
try:
    {call}
except tutti.Error as error:
    print(error.code, error)
"""
    done = lines_of(ranks(2, script))
    assert len(done) == 2 and words in done[0], done


def test_a_process_forked_from_a_rank_ends_without_being_missed() -> None:
    script = """
if rank == 0 and (child := os.fork()) == 0:
    try:
        world.barrier()
    except tutti.Error as error:
        assert "forked" in str(error), error
        sys.exit(0)
    os._exit(1)
if rank == 0:
    assert os.waitpid(child, 0)[1] == 0
for _ in range(100):
    world.barrier()
print("well")
"""
    assert lines_of(ranks(2, script)) == [f"[{rank}] well" for rank in range(2)]


def test_a_rank_that_ends_without_a_word_is_not_waited_for() -> None:
    script = """
world.barrier()
if rank == 1:
    os._exit(0)
try:
    world.barrier()
except tutti.fabric.PeerLost as lost:
    print(lost.ranks)
try:
    fabric.receive(np.empty(3), 1)
except tutti.fabric.PeerLost as lost:
    print(lost.ranks)
"""
    assert lines_of(ranks(3, script)) == ["[0] (1,)", "[0] (1,)", "[2] (1,)", "[2] (1,)"]


def test_survivors_hear_of_a_death_before_the_memory_of_the_dead_is_given_back() -> None:
    script = """
pids = np.empty(size, np.int64)
world.all_gather(np.array([os.getpid()]), pids)
memory = fabric.zeros(512 << 20, "u8")
world.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    world.barrier()
except tutti.fabric.PeerLost as lost:
    state = open(f"/proc/{pids[1]}/stat").read().rpartition(")")[2].split()[0]
    print(lost.ranks, state != "Z", flush=True)
    time.sleep(60)
"""
    told: set[str] = set()
    for _ in range(20):  # the kernel may be quicker, where others have the processors
        done = ranks(2, script)
        assert "rank 1 failed first: killed by SIGKILL" in done.stderr
        told |= set(done.stdout.splitlines())
        if "[0] (1,) True" in told:
            return
    pytest.fail(f"told too late every time: {told}")


def test_a_process_outside_of_a_job_is_alone_and_everything_works() -> None:
    script = """
import numpy as np, tutti
fabric = tutti.fabric.join()
x = fabric.zeros(10) + 3
assert fabric.size == 1 and (fabric.world.all_reduce(x, op="mean") == 3).all()
model = tutti.vault.Replica(fabric, {"w": (4,)})
model.set_born()
for step in model.steps(3):
    model.gradients["w"][...] = 1
    assert model.take_step()
assert model.step == 3 and (model.weights["w"] < 0).all()
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=ENVIRONMENT)


def test_vault_tensors_keep_their_names_types_and_shapes() -> None:
    fabric = tutti.fabric.join()
    array, found = tutti.vault.tensor(fabric, "table", (3, 4), "i32")
    assert not found and array.shape == (3, 4) and not array.any()
    array[1, 2] = 7
    again, found = tutti.vault.tensor(fabric, "table", (3, 4), "i32")
    assert found and again[1, 2] == 7
    with pytest.raises(tutti.Error, match=r"as i32 \[3, 4\], not f32 \[12\]"):
        tutti.vault.tensor(fabric, "table", (12,), "f32")
    assert np.shares_memory(array, again)


def test_a_tuning_is_kept_for_the_next_program_and_measured_anew_when_it_is_damaged(
    tmp_path: Path,
) -> None:
    script = """
x = np.full(1 << 19, rank + 1, np.float32)
world.all_reduce(x)
assert (x == 3).all() and 256 <= fabric.tuning["small_bytes"] <= 32768
assert list(fabric.tuning["reduces"]) == [16384, 65536, 1048576, None]
print(fabric.tuning["origin"])
"""
    command = [sys.executable, "-c", PRELUDE + script]

    def origin(tune: str) -> str:
        env = ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path), "TUTTI_FABRIC_TUNE": tune}
        told = {
            line.split()[1]
            for line in lines_of(run_tutti("--local", "-n", "2", "--", *command, env=env))
        }
        assert len(told) == 1  # all ranks have the same
        return told.pop()

    assert origin("off") == "defaults" and not list(tmp_path.iterdir())
    assert origin("now") == "measured"
    (kept,) = (tmp_path / "tutti/fabric").iterdir()
    assert origin("auto") == "cached" and origin("off") == "defaults"
    text = kept.read_text()
    kept.write_text(text.replace('"small_bytes": ', '"small_bytes": 1'))
    cores = os.cpu_count() or 1
    assert origin("auto") == ("measured" if cores >= 2 else "defaults")
    if cores >= 2:
        assert origin("auto") == "cached"


def test_a_word_that_is_no_way_to_tune_is_refused() -> None:
    env = ENVIRONMENT | {"TUTTI_FABRIC_TUNE": "fast"}
    command = [sys.executable, "-c", PRELUDE]
    done = run_tutti("--local", "-n", "1", "--", *command, env=env)
    assert done.returncode != 0
    words = "TUTTI_FABRIC_TUNE: 'fast' is no way to tune the fabric; use off, auto or now"
    assert words in done.stderr


def test_the_example_loses_no_step_when_workers_are_killed(gang: Marked, tmp_path: Path) -> None:
    """Keeper, epochs, control pages, fabric, vault and commit, all at once."""
    steps = "3000"
    undisturbed = run_tutti("--local", "-n", "4", "--", *example("--steps", steps), env=ENVIRONMENT)
    expected = digests_of(undisturbed.stdout)
    assert undisturbed.returncode == 0 and len(expected) == 1
    with start_example(gang, tmp_path, steps) as running:
        killed = 0
        deadline = time.monotonic() + PATIENCE_S
        while running.poll() is None and killed < 6 and time.monotonic() < deadline:
            time.sleep(0.2)
            workers = [line for line in gang.living() if "mlp_numpy" in line]
            if len(workers) >= 4:
                os.kill(int(workers[killed % len(workers)].split()[0]), signal.SIGKILL)
                killed += 1
        output, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, output
    assert killed >= 2, output
    assert digests_of(output) == expected, output
    assert len(re.findall(rf"done: {steps} steps", output)) >= 4, output
