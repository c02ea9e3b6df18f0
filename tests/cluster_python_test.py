"""tutti.Cluster: jobs of a real cluster from Python."""

import os
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tutti
from cluster_tools import Machine
from run_tools import MARK, PATIENCE_S, wait_until

TOML = """name = "from-file"
[gang.worker]
count = 2
command = ["sh", "-c", "echo $RANK of $WORLD_SIZE"]
"""


@pytest.fixture
def door(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[tutti.Cluster]:
    for key in ("TUTTI_HOME", MARK, "USER"):
        monkeypatch.setenv(key, machine.environment[key])
    with tutti.Cluster() as cluster:
        yield cluster


def role(script: str, **keys) -> tutti.Role:
    return tutti.Role("worker", ["sh", "-c", script], **keys)


def test_roles_become_a_job_whose_lines_can_be_read(door: tutti.Cluster) -> None:
    job = door.submit(name="hello", roles=[role("echo out $RANK; echo err >&2", count=2)])
    lines = {(line.role, line.rank, line.stream, line.text) for line in job.output()}
    assert lines == {
        ("worker", rank, *told)
        for rank in range(2)
        for told in [("stdout", f"out {rank}"), ("stderr", "err")]
    }
    assert job.wait() == job.state == "succeeded"
    assert job.verdict() == ""
    assert repr(job) == f"<tutti.Job {job.number} hello: succeeded, 2 processes>"


def test_lines_come_while_the_job_runs_and_one_may_stop_reading(door: tutti.Cluster) -> None:
    job = door.submit(name="ticks", roles=[role("while echo tick; do sleep 0.05; done")])
    for number, line in enumerate(job.output()):
        assert line.text == "tick"
        if number == 3:
            break
    assert job.state == "running"
    assert job.kill(grace=0) == "killed"


def test_more_output_than_anybody_keeps_in_memory_comes_whole(door: tutti.Cluster) -> None:
    job = door.submit(name="much", roles=[role("seq 300000; printf end")])
    lines = [line.text for line in job.output()]
    assert lines == [*map(str, range(1, 300001)), "end"]


def test_a_file_and_a_dict_are_jobs_too(door: tutti.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TOML)
    said = {
        "name": "from-dict",
        "folder": tmp_path,
        "environment": {"TASTE": 'so"ur\\'},
        "gang": {"worker": {"command": "pwd; echo $TASTE", "slots": 2}},
    }
    texts = [[line.text for line in door.submit(job).output()] for job in (path, said)]
    assert sorted(texts[0]) == ["0 of 2", "1 of 2"]
    assert texts[1] == [str(tmp_path), 'so"ur\\']
    assert [job.name for job in door.jobs(all=True)] == ["from-dict", "from-file"]


def test_mistakes_are_told_in_the_words_of_the_command(
    door: tutti.Cluster, machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TOML.replace("count", "cuont"))
    with pytest.raises(tutti.Error) as in_file:
        door.submit(path)
    assert f"tutti submit: {in_file.value}\n" == machine("submit", path).stderr
    with pytest.raises(tutti.Error) as in_dict:
        door.submit(name="try", roles=[role("true", cuont=2)])
    assert in_dict.value.code == "invalid"
    assert str(in_dict.value) == "unknown key 'gang.worker.cuont'; did you mean 'count'?"
    with pytest.raises(tutti.Error, match="there is no job 99; see `tutti jobs --all`"):
        door.job(99)
    with pytest.raises(tutti.Error, match="No such file"):
        door.submit(tmp_path / "none.toml")
    with pytest.raises(TypeError, match="a job cannot hold <object"):
        door.submit(name="try", roles=[role("true", count=object())])


def test_a_wait_has_an_end_and_the_job_goes_on(door: tutti.Cluster) -> None:
    job = door.submit(name="long", roles=[role("sleep 1000")])
    with pytest.raises(tutti.Error) as late:
        job.wait(timeout=0.2)
    assert late.value.code == "deadline"
    assert str(late.value) == f"job {job.number} is not over after 200 ms; it goes on"
    assert job.state == "running"
    job.kill()


def test_a_failing_job_has_the_verdict_of_a_run(door: tutti.Cluster) -> None:
    job = door.submit(name="bad", roles=[role("echo it broke; exit 7", count=2, slots=1)])
    assert job.wait() == "failed"
    assert "failed first: exit code 7, after " in job.verdict()
    assert "its last lines (stdout):\n    | it broke\n" in job.verdict()
    with pytest.raises(tutti.Error, match="failed first: exit code 7") as failed:
        job.wait(check=True)
    assert failed.value.code == "failed"


def test_a_job_whose_time_was_up_says_so_and_who_still_ran(door: tutti.Cluster) -> None:
    roles = [role("trap '' TERM; sleep 1000 & wait; sleep 1000", count=2)]
    job = door.submit(name="late", roles=roles, timeout="300ms", grace="200ms")
    assert job.wait() == "timed-out"
    headline, *rest = job.verdict().splitlines()
    assert headline == "tutti: the time of 300 ms is up; ranks 0-1 still ran"
    assert any("still there 200 ms after being asked to end" in line for line in rest)
    assert rest[-1].endswith("exit code 124")


def test_processes_hosts_and_status_are_told(door: tutti.Cluster) -> None:
    job = door.submit(name="two", roles=[role("sleep 1000", count=2)])
    wait_until(lambda: [p.state for p in job.processes()] == ["running"] * 2, "both run")
    first, second = job.processes()
    assert (first.role, first.rank, first.host) == ("worker", 0, "one")
    assert second.memory_bytes > 0
    os.kill(first.pid, 0)
    assert [(host.name, host.slots, host.free) for host in door.hosts()] == [("one", 8, 6)]
    assert door.status()["running_jobs"] == 1
    assert [other.number for other in door.jobs()] == [job.number]
    job.kill(grace=0)


def test_jobs_are_picked_as_by_the_command(door: tutti.Cluster) -> None:
    for name, script in {"sweep-1": "true", "sweep-2": "false", "other": "false"}.items():
        door.submit(name=name, roles=[role(script)]).wait()
    assert door.jobs() == []
    assert [job.name for job in door.jobs(state="failed")] == ["other", "sweep-2"]
    assert [job.name for job in door.jobs(all=True, name="sweep*")] == ["sweep-2", "sweep-1"]
    assert [job.name for job in door.jobs(state=["failed", "succeeded"], limit=1)] == ["other"]
    assert len(door.jobs(since=3600, user=pwd.getpwuid(os.getuid()).pw_name)) == 3
    with pytest.raises(tutti.Error, match="did you mean failed"):
        door.jobs(state="faild")


def test_a_role_may_escalate_and_a_sidecar_takes_no_slots(door: tutti.Cluster) -> None:
    job = door.submit(
        name="stubborn",
        roles=[role("kill -9 $$", restarts={"killed": 1, "delay": 0}, escalate={"job": 1})],
    )
    assert job.wait() == "failed"
    assert job.restarts == 3  # one each of the process, before and after that of the job
    beside = tutti.Role("watch", "sleep 1000", kind="sidecar", beside="worker", slots=1)
    with pytest.raises(tutti.Error, match="they take no slots of their own"):
        door.submit(name="beside", roles=[role("true"), beside])
    with pytest.raises(tutti.Error, match="gang"):
        door.submit(name="scopes", roles=[role("true", escalate={"gang": 1})])


def test_a_signal_reaches_the_ranks_of_a_role(door: tutti.Cluster) -> None:
    heed = "trap '' USR1; echo heard; exit 0"
    script = f'trap "{heed}" USR1; echo ready; while :; do sleep 0.05; done'
    other = tutti.Role("other", ["sh", "-c", script], kind="task", count=2)
    job = door.submit(name="signals", roles=[other, role(script, count=2)])
    heard = []
    ready = 0
    for line in job.output():
        ready += line.text == "ready"
        if line.text == "ready" and ready == 4:
            with pytest.raises(tutti.Error, match="has several roles"):
                job.signal("USR1", "1")
            job.signal(signal.SIGUSR1, "worker/1")
        if line.text == "heard":
            heard.append((line.role, line.rank))
            if len(heard) == 1:
                job.signal("SIGUSR1")
    assert heard[0] == ("worker", 1)
    assert sorted(heard) == [("other", 0), ("other", 1), ("worker", 0), ("worker", 1)]
    assert job.wait() == "succeeded"


def test_other_threads_run_while_one_waits_and_closing_ends_its_wait(
    door: tutti.Cluster,
) -> None:
    job = door.submit(name="long", roles=[role("sleep 1000")])
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            job.wait()
        except tutti.Error as error:
            seen.append(error)

    other = tutti.Cluster()
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert other.job(job.number).state in ("starting", "running")
    assert other.job(job.number).kill(grace=0) == "killed"
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert not seen
    other.close()
    other.close()
    with pytest.raises(tutti.Error, match="this Cluster is closed"):
        other.status()


def test_a_cluster_that_is_gone_is_told_as_by_the_command(
    door: tutti.Cluster, machine: Machine
) -> None:
    machine.well("down")
    with pytest.raises(tutti.Error) as gone:
        door.jobs()
    assert str(gone.value) == "no cluster is running here; start one with `tutti up`"
    with pytest.raises(tutti.Error, match="start one with `tutti up`"):
        tutti.Cluster()
    machine.well("up")
    assert door.jobs() == []


def run_python(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("wait", ["job.wait()", "list(job.output())"])
def test_ctrl_c_ends_a_wait_and_leaves_the_job(door: tutti.Cluster, wait: str) -> None:
    job = door.submit(name="long", roles=[role("sleep 1000")])
    script = f"""
import os, signal, threading, tutti
job = tutti.Cluster().job({job.number})
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    {wait}
except KeyboardInterrupt:
    print("interrupted", job.state in ("starting", "running"))
"""
    output, errors = (child := run_python(script)).communicate(timeout=PATIENCE_S)
    assert (output, errors, child.returncode) == ("interrupted True\n", "", 0)
    job.kill(grace=0)


def test_nothing_is_left_behind_at_exit_with_or_without_close(door: tutti.Cluster) -> None:
    script = """
import os, threading, tutti
before = len(os.listdir("/proc/self/task"))
with tutti.Cluster() as cluster:
    assert len(os.listdir("/proc/self/task")) > before
assert len(os.listdir("/proc/self/task")) == before
kept = tutti.Cluster()
following = kept.submit(name="t", roles=[tutti.Role("w", "sleep 1000")]).output()
print(kept.jobs()[0].number, flush=True)
if os.fork() == 0:
    try:
        kept.jobs()
    except tutti.Error as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    child = run_python(script)
    output, errors = child.communicate(timeout=PATIENCE_S)
    assert (errors, child.returncode) == ("", 0)
    number, forked = output.splitlines()
    assert "make another one here" in forked
    door.job(int(number)).kill(grace=0)


def test_a_role_of_no_kind_is_told_which_there_are() -> None:
    with pytest.raises(ValueError, match="gang, service, task, sidecar, not 'foo'"):
        tutti.Role("worker", "true", kind="foo")
