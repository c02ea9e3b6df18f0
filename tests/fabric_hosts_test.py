"""The fabric over several hosts: agents of one machine, which share no memory of their jobs."""

import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster
from fabric_tools import ENVIRONMENT, EVERY_COLLECTIVE, PRELUDE, ROOT
from run_tools import wait_until


@pytest.fixture
def hosts() -> Iterator[Cluster]:
    """Three hosts with two slots each."""
    cluster = Cluster(uuid.uuid4().hex)
    cluster.head.well("up", "--name", "one", "--slots", "2")
    for name in ("two", "three"):
        cluster.join(name, 2)
    for machine in cluster.machines:
        machine.environment |= {key: ENVIRONMENT[key] for key in ("PYTHONPATH", "OMP_NUM_THREADS")}
    yield cluster
    cluster.end()


def run(cluster: Cluster, count: int, script: str) -> list[str]:
    command = [sys.executable, "-c", PRELUDE + script]
    return sorted(cluster.head.well("run", "-n", str(count), "--", *command).splitlines())


def test_every_collective_works_over_hosts(hosts: Cluster) -> None:
    assert run(hosts, 6, EVERY_COLLECTIVE) == [f"[{rank}] well" for rank in range(6)]


def test_encrypted_too_and_with_several_connections(hosts: Cluster) -> None:
    script = EVERY_COLLECTIVE.replace("print", "x = np.ones(3_000_000, np.float32)\nprint")
    command = PRELUDE.replace("join(60)", "join(60, streams=2, encrypt=True)") + script
    command += "assert (world.all_reduce(x) == size).all()\n"
    done = hosts.head.well("run", "-n", "5", "--", sys.executable, "-c", command)
    assert sorted(done.splitlines()) == [f"[{rank}] well" for rank in range(5)]


def test_sums_have_the_same_bits_on_one_host_and_on_three(hosts: Cluster) -> None:
    script = """
random = np.random.default_rng(rank)
x = fabric.adopt(random.standard_normal(300_001).astype(np.float32))
world.all_reduce(x, op="mean")
y = random.standard_normal(5000).astype(np.float16)
world.all_reduce(y)
print(f"{tutti.hash64(x):x} {tutti.hash64(y):x}")
"""
    alone = [sys.executable, "-c", PRELUDE + script]
    one = hosts.head.well("run", "--local", "-n", "6", "--", *alone).splitlines()
    assert sorted(one) == run(hosts, 6, script)
    assert len({line.split("]")[1] for line in one}) == 1


def test_ranks_on_other_hosts_that_call_something_else_are_told(hosts: Cluster) -> None:
    script = """
try:
    world.all_reduce(np.ones(9 if rank == 5 else 10, np.float32))
except tutti.Error as error:
    assert "9 f32" in str(error) and "10 f32" in str(error), error
    print("told")
"""
    assert run(hosts, 6, script) == [f"[{rank}] told" for rank in range(6)]


# Who was there from the beginning loses somebody; who came in its place does not.
LOSING = """
try:
    while int(os.environ["TUTTI_EPOCH"]) & 0xFFFFFFFF == 1:
        world.all_reduce(x := np.ones(200_000, np.float32))
        assert (x == size).all()
        tutti.control.page().step = 1
except tutti.fabric.PeerLost as lost:
    print("lost", *lost.ranks, flush=True)
    fabric.rejoin()
fabric.world.all_reduce(x := np.ones(10, np.float32))
assert (x == size).all()
print("goes on")
"""
JOB = """
name = "losing"

[gang.worker]
count = 6
command = ["{python}", "losing.py"]
strategy = "one_for_one"
restarts = {{ killed = 3, delay = "0s" }}
"""


def test_a_death_on_one_host_is_heard_on_all_and_the_gang_goes_on(
    hosts: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "losing.py").write_text(PRELUDE + LOSING)
    (tmp_path / "job.toml").write_text(JOB.format(python=sys.executable))
    running = hosts.head.start("run", "job.toml", cwd=tmp_path)
    wait_until(lambda: [each.get("step") for each in processes(hosts)] == [1] * 6, "they go round")
    hosts.head.well("signal", "1", "KILL", "--rank", "worker/5")
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, out + err + hosts.head.logs()
    lines = sorted(out.splitlines())
    assert [line for line in lines if "lost" in line] == [f"[{rank}] lost 5" for rank in range(5)]
    assert [line for line in lines if "goes on" in line] == [f"[{r}] goes on" for r in range(6)]


# Holds a thread in its death until a file is there: while it stands still the memory of its process
# is not given back, and nobody can wait for the process.
HOLD_IN_DEATH = """
import ctypes, os, sys, time
PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 0x4206, 0x40
thread, until = int(sys.argv[1]), sys.argv[2]
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if ptrace(PTRACE_SEIZE, thread, None, PTRACE_O_TRACEEXIT) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("holds", flush=True)
end = time.monotonic() + 30
while not os.path.exists(until) and time.monotonic() < end:
    time.sleep(0.01)
"""


def test_hosts_hear_of_a_death_before_the_memory_of_the_dead_is_given_back(
    hosts: Cluster, tmp_path: Path
) -> None:
    script = f"""
import ctypes, subprocess, threading
idle = threading.Thread(target=time.sleep, args=(600,), daemon=True)
idle.start()
threads = np.empty(2 * size, np.int64)
world.all_gather(np.array([os.getpid(), idle.native_id]), threads)
if rank == 5:
    ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_long(-1))  # PR_SET_PTRACER, where only parents may
    words = ["-c", {HOLD_IN_DEATH!r}, str(idle.native_id), {str(tmp_path / "told")!r}]
    held = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert held.stdout.readline() == "holds\\n"
world.barrier()
if rank == 5:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    world.barrier()
except tutti.fabric.PeerLost as lost:
    print(lost.ranks, os.path.exists(f"/proc/{{threads[10]}}/task/{{threads[11]}}"), flush=True)
    if rank == 0:
        open({str(tmp_path / "told")!r}, "w").close()
    time.sleep(60)
"""
    done = hosts.head("run", "-n", "6", "--", sys.executable, "-c", PRELUDE + script)
    assert "rank 5 failed first: killed by SIGKILL" in done.stderr
    assert "[0] (5,) True" in done.stdout.splitlines(), done.stdout + done.stderr


def test_a_reshard_over_hosts_is_the_one_of_one_host(hosts: Cluster) -> None:
    script = """
from tutti.fabric import Layout, Mesh, plan
mesh = Mesh({"a": 3, "b": 2})
whole = np.random.default_rng(1).standard_normal((1501, 700)).astype(np.float32)
tiles = Layout(whole.shape, mesh, {0: "a", 1: "b"})
columns = Layout(whole.shape, mesh, {1: ("b", "a")})
sums = Layout(whole.shape, mesh, {0: "b"}, partial="a")
state = plan({"w": (tiles, columns, ("f32", "f64")), "s": (sums, columns)})
w = np.ascontiguousarray(whole[tiles.box(rank)])
s = whole[sums.box(rank)] * np.float32(1 + 0.1 * rank)
new = world.reshard({"w": (w, w.astype(np.float64) * 3), "s": s}, state)
expected = whole[columns.box(rank)]
assert (new["w"][0] == expected).all()
assert (new["w"][1] == expected.astype(np.float64) * 3).all()
print(f"{tutti.hash64(np.ascontiguousarray(new['s'])):x}")
"""
    alone = [sys.executable, "-c", PRELUDE + script]
    one = hosts.head.well("run", "--local", "-n", "6", "--", *alone).splitlines()
    assert len(one) == 6
    assert sorted(one) == run(hosts, 6, script)


def test_who_waits_for_a_rank_of_another_host_that_has_ended_is_told(hosts: Cluster) -> None:
    script = """
world.all_reduce(np.ones(10, np.float32))
if rank == 5:
    sys.exit()
try:
    world.all_reduce(np.ones(10, np.float32))
except tutti.fabric.PeerLost as lost:
    print("told", *lost.ranks, flush=True)
"""
    assert run(hosts, 6, script) == [f"[{rank}] told 5" for rank in range(5)]


ONE_ON_EACH = """
name = "stopped"

[gang.worker]
count = 3
slots = 2
command = ["{python}", "stopped.py"]
"""


def test_who_waits_for_a_rank_that_is_stopped_is_told_for_whom_and_it_goes_on(
    hosts: Cluster, tmp_path: Path
) -> None:
    script = """
world.barrier()
if rank == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
pending = world.all_reduce(x := np.ones(300_000, np.float32), wait=False)
if rank != 2:
    try:
        pending.wait(0.5)
    except tutti.fabric.TimedOut as late:
        assert "ranks 2 of other hosts" in str(late), late
        tutti.control.page().step = 1
pending.wait()
assert (x == size).all()
print("well")
"""
    (tmp_path / "stopped.py").write_text(PRELUDE + script)
    (tmp_path / "job.toml").write_text(ONE_ON_EACH.format(python=sys.executable))
    running = hosts.head.start("run", "job.toml", cwd=tmp_path)
    told = [1, 1, 0]
    wait_until(lambda: [each.get("step", 0) for each in processes(hosts)] == told, "they are told")
    hosts.head.well("signal", "1", "CONT", "--rank", "worker/2")
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, out + err + hosts.head.logs()
    assert sorted(out.splitlines()) == [f"[{rank}] well" for rank in range(3)]


def test_the_example_has_the_same_bits_on_three_hosts_with_a_kill(hosts: Cluster) -> None:
    text = (ROOT / "examples/jobs/mlp.toml").read_text().replace("count = 4", "count = 5")
    text = text.replace('"python"', f'"{sys.executable}"')
    job = hosts.head.home / "mlp.toml"
    job.write_text(text)
    alone = hosts.head.well("run", "--local", "-n", "5", "--", *example(), cwd=ROOT)
    running = hosts.head.start("run", str(job), cwd=ROOT)
    wait_until(lambda: any(each.get("step", 0) > 200 for each in processes(hosts)), "it trains")
    hosts.head.well("signal", "1", "KILL", "--rank", "worker/4")
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, out + err + hosts.head.logs()
    assert digests(out) == digests(alone)
    assert len(digests(out)) == 1


def example() -> list[str]:
    return [sys.executable, "examples/mlp_numpy.py"]


def processes(cluster: Cluster) -> list[dict]:
    return cluster.head.json("ps", "1") if cluster.head.json("jobs") else []


def digests(out: str) -> set[str]:
    return set(re.findall(r"digest (\w+)", out))
