"""`tutti stuck`: what a job waits for, with real processes that do not come."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster_tools import Cluster, Machine
from run_tools import wait_until

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = """\
import os, sys, time, numpy as np, tutti
fabric = tutti.fabric.join(600)
world, rank, size = fabric.world, fabric.rank, fabric.size
x = np.ones(1000, np.float32)
"""


def submit(machine: Machine, folder: Path, script: str, ranks: int, *options: str) -> int:
    (folder / "train.py").write_text(script)
    machine.environment["PYTHONPATH"] = str(ROOT / "python")
    words = ("submit", "-n", str(ranks), *options, "--", sys.executable, str(folder / "train.py"))
    return int(machine.well(*words))


def told(machine: Machine, job: int, *options: str) -> dict:
    """Of its only role."""
    return machine.json("stuck", str(job), *options)["roles"][0]


def when(machine: Machine, job: int, condition) -> dict:
    """The answer, once it is so."""
    answers: list[dict] = []

    def holds() -> bool:
        answers.append(told(machine, job))
        return bool(condition(answers[-1]))

    wait_until(holds, "the answer is as it should be")
    return answers[-1]


def waits_in(what: str, missing: list[int]):
    return lambda role: any(w["what"] == what and w["missing"] == missing for w in role["waits"])


def test_a_rank_that_sleeps_before_a_call_is_named(machine: Machine, tmp_path: Path) -> None:
    script = PRELUDE + (
        "world.barrier()\n"  # line 5
        "if rank == 2: tutti.control.page().step = 7; time.sleep(1000)\n"
        "world.all_reduce(x)\n"
    )
    job = submit(machine, tmp_path, script, 4)
    role = when(machine, job, waits_in("call", [2]))
    (wait,) = role["waits"]
    assert wait["group"] == "world" and wait["arrived"] == [0, 1, 3] == wait["waiting"]
    call = wait["call"]
    assert (call["call"], call["kind"], call["elements"]) == (2, "all_reduce", 1000)
    assert (call["type"], call["op"], call["bytes"]) == ("f32", "sum", 4000)
    assert call["site"] == "train.py:7"
    late = role["ranks"][2]
    assert late["doing"] == "sleeps" and late["step"] == 7
    assert late["last_call"]["kind"] == "barrier" and late["last_call"]["site"] == "train.py:5"
    assert role["deadlocks"] == []
    text = machine.well("stuck", str(job))
    assert "\ngroup world, call 2, all_reduce of 1000 f32, sum at train.py:7\n" in text
    assert "  arrived  ranks 0-1,3, waiting for " in text
    assert "missing  rank 2: sleeping, without using the processor, at step 7" in text
    assert "last call there: 1, barrier at train.py:5" in text
    assert f"next: py-spy dump --pid {late['pid']} (on one)" in text
    history = machine.well("stuck", str(job), "--rank", "0")
    assert "all_reduce of 1000 f32, sum  train.py:7  arrived" in history


def test_a_rank_that_computes_is_told_from_one_that_sleeps(
    machine: Machine, tmp_path: Path
) -> None:
    script = PRELUDE + "while rank == 0: pass\nworld.barrier()\n"
    job = submit(machine, tmp_path, script, 2)
    role = when(machine, job, lambda r: waits_in("call", [0])(r) and r["ranks"][0]["processors"])
    assert role["ranks"][0]["doing"] == "computes"
    assert role["ranks"][0]["last_call"] is None


def test_a_stopped_rank_is_told_with_the_command_that_wakes_it(
    machine: Machine, tmp_path: Path
) -> None:
    script = PRELUDE + "while True: world.all_reduce(x)\n"
    job = submit(machine, tmp_path, script, 3)
    when(machine, job, lambda role: [r["doing"] for r in role["ranks"]] == ["calls"] * 3)
    assert "nothing is stuck" in machine.well("stuck", str(job))
    machine.well("signal", str(job), "STOP", "--rank", "1")
    role = when(machine, job, lambda role: role["waits"] and role["waits"][0]["missing"] == [1])
    assert role["ranks"][1]["doing"] == "stopped"
    text = machine.well("stuck", str(job))
    command = f"tutti signal {job} CONT --rank 1"
    assert "rank 1: stopped by a signal" in text and f"next: {command}\n" in text
    machine.well(*command.split()[1:])
    when(machine, job, lambda role: not role["waits"])
    machine.well("kill", str(job), "--grace", "0s")


def test_a_deadlock_over_two_groups_is_called_so(machine: Machine, tmp_path: Path) -> None:
    script = PRELUDE + (
        "a = fabric.group([0, 1, 2], 'A')\n"
        "b = fabric.group([0, 2], 'B') if rank != 1 else None\n"
        "if rank == 2: b.barrier()\n"
        "a.barrier()\n"
        "if rank == 0: b.barrier()\n"
    )
    job = submit(machine, tmp_path, script, 3)
    role = when(machine, job, lambda role: role["deadlocks"])
    assert role["deadlocks"] == [
        [{"ranks": [0, 1], "wait": 0, "for": [2]}, {"ranks": [2], "wait": 1, "for": [0]}]
    ]
    text = machine.well("stuck", str(job))
    assert "\ndeadlock, for " in text
    assert "  ranks 0-1 wait in group A, call 1, barrier at train.py:8, for rank 2\n" in text
    assert "  rank 2 waits in group B, call 1, barrier at train.py:7, for rank 0\n" in text
    assert "next: let all ranks make the calls of these groups in the same order" in text


def test_who_has_not_joined_is_missing(machine: Machine, tmp_path: Path) -> None:
    script = "import os, time\nif os.environ['RANK'] == '1': time.sleep(1000)\n" + PRELUDE
    job = submit(machine, tmp_path, script, 2)
    role = when(machine, job, waits_in("join", [1]))
    assert role["waits"][0]["arrived"] == [0]
    text = machine.well("stuck", str(job))
    assert "\ntutti.fabric.join()\n  arrived  rank 0\n" in text
    assert "not in the fabric yet" in text


def test_one_that_returned_early_is_told_of(machine: Machine, tmp_path: Path) -> None:
    # Without taking its leave: the kernel tells the others.
    script = PRELUDE + (
        "if rank == 1: os._exit(0)\ntry: world.barrier()\nexcept tutti.Error: time.sleep(1000)\n"
    )
    job = submit(machine, tmp_path, script, 2)
    role = when(machine, job, lambda role: role["failures"])
    (failure,) = role["failures"]
    assert failure["ranks"] == [0] and "rank 1 has left: its process ends" in failure["why"]


def test_a_job_without_the_fabric_tells_how_far_it_is(machine: Machine, tmp_path: Path) -> None:
    script = (
        "import time, tutti\npage = tutti.control.page()\n"
        "page.step = 3; page.phase = 2; page.progress()\ntime.sleep(1000)\n"
    )
    job = submit(machine, tmp_path, script, 4)
    when(machine, job, lambda role: [r["step"] for r in role["ranks"]] == [3] * 4)
    text = machine.well("stuck", str(job))
    assert "nothing is stuck\n" in text
    assert "ranks 0-3: sleeping, without using the processor, at step 3, phase 2" in text


def test_a_dead_job_tells_what_each_rank_did_when_it_was_ended(
    machine: Machine, tmp_path: Path
) -> None:
    script = PRELUDE + "world.barrier()\nif rank == 1: time.sleep(1000)\nworld.all_reduce(x)\n"
    job = submit(machine, tmp_path, script, 3)
    when(machine, job, waits_in("call", [1]))
    machine.well("kill", str(job), "--grace", "1s")
    for _ in range(2):
        answer = machine.json("stuck", str(job))
        assert answer["past"] and answer["stuck"]
        (wait,) = answer["roles"][0]["waits"]
        assert wait["missing"] == [1] and wait["arrived"] == [0, 2]
        assert answer["roles"][0]["ranks"][1]["doing"] == "sleeps"
        assert answer["roles"][0]["ranks"][1]["exit"] == {"code": 0, "signal": 15}
        # What it says is on the host's disk: another agent finds it.
        machine.kill_hard("agent")
        machine.well("up")
    text = machine.well("stuck", str(job))
    assert "as they were when they ended" in text
    assert "\ngroup world, call 2, all_reduce of 1000 f32, sum at train.py:7\n" in text
    assert "  arrived  ranks 0,2, waited for " in text
    assert "(told to end, killed by SIGTERM)" in text
    history = machine.well("stuck", str(job), "--rank", "0")
    assert "barrier" in history and "train.py:5" in history


def test_a_killed_rank_is_in_the_answer_of_the_dead_job(machine: Machine, tmp_path: Path) -> None:
    script = PRELUDE + "world.barrier()\nif rank == 1: time.sleep(1000)\nworld.all_reduce(x)\n"
    job = submit(machine, tmp_path, script, 2)
    role = when(machine, job, waits_in("call", [1]))
    os.kill(role["ranks"][1]["pid"], signal.SIGKILL)
    machine.wait_for(job, "failed")
    text = machine.well("stuck", str(job))
    assert "missing  rank 1: killed by SIGKILL; last call there: 1, barrier" in text
    assert "  arrived  rank 0, waited for " in text


def test_calls_that_differed_are_in_the_answer_of_the_dead_job(
    machine: Machine, tmp_path: Path
) -> None:
    script = PRELUDE + "world.all_reduce(np.ones(5 + rank, np.float32))\n"
    job = submit(machine, tmp_path, script, 2)
    machine.wait_for(job, "failed")
    text = machine.well("stuck", str(job))
    assert "gave up: ranks do not call the same in group world" in text
    assert "of 5 f32, sum at train.py:5" in text and "of 6 f32, sum at train.py:5" in text
    assert "next: members of a group make the same calls" in text


def test_a_hang_that_supervision_ended_is_kept_through_the_restart(
    machine: Machine, tmp_path: Path
) -> None:
    script = PRELUDE + (
        "world.barrier(); page = tutti.control.page(); page.progress()\n"
        "if os.environ['TUTTI_EPOCH'] == open('first').read() and rank == 1: time.sleep(1000)\n"
        "while True: world.all_reduce(x); page.progress(); time.sleep(0.01)\n"
    )
    (tmp_path / "train.py").write_text(
        "import os, pathlib\n"
        "first = pathlib.Path('first')\n"
        "if not first.exists(): first.write_text(os.environ['TUTTI_EPOCH'])\n" + script
    )
    (tmp_path / "job.toml").write_text(
        f'name = "hangs"\nfolder = "{tmp_path}"\n[gang.worker]\n'
        f'command = ["{sys.executable}", "train.py"]\ncount = 2\nhang_after = "2s"\n'
        "restarts = { hang = 3 }\n"
    )
    machine.environment["PYTHONPATH"] = str(ROOT / "python")
    job = int(machine.well("submit", str(tmp_path / "job.toml")))
    wait_until(lambda: machine.job(job)["restarts"] == 1, "it was started again")
    machine.wait_for(job, "running")
    role = told(machine, job, "--ended")
    assert any(wait["missing"] == [1] and wait["waiting"] == [0] for wait in role["waits"]), role
    when(machine, job, lambda role: not role["waits"])
    assert f"tutti stuck {job} --ended shows" in machine.well("stuck", str(job))
    machine.well("kill", str(job), "--grace", "0s")


def test_a_job_that_succeeded_says_so(machine: Machine, tmp_path: Path) -> None:
    job = submit(machine, tmp_path, PRELUDE + "world.barrier()\n", 2)
    machine.wait_for(job, "succeeded")
    assert "it succeeded: nothing was stuck" in machine.well("stuck", str(job))


def test_hosts_answer_together(cluster: Cluster, tmp_path: Path) -> None:
    """Without the fabric so far: its gangs are on one host."""
    cluster.join("two", 8)
    script = (
        "import os, time, tutti\npage = tutti.control.page()\n"
        "page.step = 1 + (os.environ['RANK'] == '11')\ntime.sleep(1000)\n"
    )
    job = submit(cluster.head, tmp_path, script, 16)
    steps = [1] * 16
    steps[11] = 2
    when(cluster.head, job, lambda role: [rank["step"] for rank in role["ranks"]] == steps)
    text = cluster.head.well("stuck", str(job))
    assert "16 processes on 2 hosts" in text
    assert "ranks 0-10,12-15: sleeping, without using the processor, at step 1" in text
    assert "rank 11: sleeping, without using the processor, at step 2" in text
    cluster.machines[1].kill_hard("agent")
    wait_until(
        lambda: "two: " in cluster.head.well("stuck", str(job)), "the silent host is told of"
    )
    assert "ranks 8-15: not here, or not known" in cluster.head.well("stuck", str(job))


def test_python_is_told_the_same(machine: Machine, tmp_path: Path) -> None:
    script = PRELUDE + "if rank == 0: time.sleep(1000)\nworld.barrier()\n"
    job = submit(machine, tmp_path, script, 2)
    when(machine, job, waits_in("call", [0]))
    ask = f"import json, tutti; print(json.dumps(tutti.Cluster().job({job}).stuck()))"
    environment = machine.environment
    words = [sys.executable, "-c", ask]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["roles"][0]["waits"][0]["missing"] == [0]


def test_messages_that_are_waited_for_are_told(machine: Machine, tmp_path: Path) -> None:
    script = PRELUDE + (
        "if rank == 0: fabric.receive(x, source=1, tag=7)\n"  # line 5
        "if rank == 1: fabric.receive(x, source=0, tag=8)\n"
        "if rank == 2: fabric.send(x, to=3)\n"
        "time.sleep(1000)\n"
    )
    job = submit(machine, tmp_path, script, 4)
    role = when(machine, job, lambda role: role["deadlocks"] and waits_in("message", [3])(role))
    messages = {w["waiting"][0]: w["message"] for w in role["waits"]}
    receives = {"kind": "receive", "rank": 1, "tag": 7, "bytes": 4000, "site": "train.py:5"}
    assert messages[0] == receives
    assert messages[2]["kind"] == "send" and messages[2]["rank"] == 3
    text = machine.well("stuck", str(job))
    assert "\na message of 4000 bytes to rank 3 with tag 0 at train.py:7\n" in text
    assert "missing  rank 3: sleeping" in text
    assert "  rank 1 waits in a message of 4000 bytes from rank 0 with tag 8 at train.py:6" in text
