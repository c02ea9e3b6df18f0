"""A cluster of one machine, as a person uses it: real head, agent, keepers and ranks."""

import json
import os
import pwd
import re
import signal
import stat
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import wait_until

# Up and down --------------------------------------------------------------------------------------


def test_up_starts_a_cluster_says_what_to_do_next_and_is_idempotent(
    empty_cluster: Cluster,
) -> None:
    machine = empty_cluster.head
    first = machine.well("up", "--name", "one", "--slots", "3")
    assert "is up: 1 host, 3 slots" in first
    assert "tutti run -n 3 -- COMMAND" in first
    pids = machine.pid("head"), machine.pid("agent")
    assert machine.well("up") == first
    assert (machine.pid("head"), machine.pid("agent")) == pids


def test_status_shows_the_hosts(machine: Machine) -> None:
    status = machine.json("status")
    assert [(h["name"], h["alive"], h["slots"], h["free"]) for h in status["hosts"]] == [
        ("one", True, 8, 8)
    ]
    lines = machine.well("status").splitlines()
    assert lines[-2].split() == ["NODE", "HOST", "STATE", "SLOTS", "FREE", "ADDRESS", "VERSION"]
    assert lines[-1].split()[1:5] == ["one", "alive", "8", "8"]


def test_down_ends_jobs_and_programs_and_up_begins_again(machine: Machine) -> None:
    job = machine.submit("sleep 1000", "-n", "2")
    machine.wait_for(job, "running")
    assert f"ended job {job} (sh)" in machine.well("down")
    assert "no cluster is running here; start one with `tutti up`" in machine("status").stderr
    machine.well("up")
    assert machine.job(job)["state"] == "killed"


def test_down_leaves_jobs_running_when_asked_and_up_finds_them(
    machine: Machine, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    job = machine.submit(f"until [ -e {flag} ]; do sleep 0.05; done; exit 0", "-n", "2")
    machine.wait_for(job, "running")
    before = [process["pid"] for process in machine.json("ps")]
    machine.well("down", "--keep-jobs")
    for pid in before:
        os.kill(pid, 0)
    machine.well("up")
    assert [process["pid"] for process in machine.json("ps")] == before
    flag.touch()
    machine.wait_for(job, "succeeded")


def test_the_home_is_private(machine: Machine) -> None:
    assert stat.S_IMODE(machine.home.stat().st_mode) == 0o700
    for secret in [*machine.home.glob("cluster/*.pem"), machine.home / "cluster/authority/key.pem"]:
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_home_with_too_long_a_name_is_refused(empty_cluster: Cluster) -> None:
    machine = empty_cluster.head
    machine.environment["TUTTI_HOME"] = "/tmp/" + "x" * 100
    done = machine("up")
    assert done.returncode == 1
    assert "set TUTTI_HOME" in done.stderr
    machine.environment["TUTTI_HOME"] = str(machine.home)


@pytest.mark.parametrize("verb", ["status", "jobs", "ps", "token"])
def test_without_a_cluster_commands_say_what_to_do(empty_cluster: Cluster, verb: str) -> None:
    done = empty_cluster.head(verb)
    assert done.returncode == 1
    assert done.stderr == (f"tutti {verb}: no cluster is running here; start one with `tutti up`\n")


# Running ------------------------------------------------------------------------------------------


def test_a_run_is_a_job_with_its_output_here(machine: Machine) -> None:
    script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR; echo to stderr >&2"
    done = machine("run", "-n", "3", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {r} {r} 3 127.0.0.1" for r in range(3)]
    assert sorted(done.stderr.splitlines()) == [f"[{r}] to stderr" for r in range(3)]
    (job,) = machine.json("jobs", "--all")
    assert (job["name"], job["state"], job["processes"]) == ("sh", "succeeded", 3)
    assert job["user"] == pwd.getpwuid(os.geteuid()).pw_name


def test_a_run_has_the_folder_and_environment_of_its_caller(
    machine: Machine, tmp_path: Path
) -> None:
    script = "pwd; echo $COLOUR $TASTE"
    machine.environment["COLOUR"] = "green"
    command = ["run", "--no-prefix", "--env", "TASTE=sour", "--", "sh", "-c", script]
    assert machine.well(*command, cwd=tmp_path).splitlines() == [str(tmp_path), "green sour"]


def test_local_runs_without_the_cluster_and_cluster_demands_one(
    machine: Machine, empty_cluster: Cluster
) -> None:
    assert machine.well("run", "--local", "--", "echo", "here") == "[0] here\n"
    assert machine.json("jobs", "--all") == []
    done = empty_cluster.add()("run", "--cluster", "--", "true")
    assert done.returncode == 1
    assert "start one with `tutti up`" in done.stderr


def test_the_first_rank_to_fail_is_named_and_gives_the_exit_code(machine: Machine) -> None:
    script = "echo working; [ $RANK = 2 ] && { echo it broke >&2; exit 7; }; sleep 1000"
    done = machine("run", "-n", "4", "--", "sh", "-c", script)
    assert done.returncode == 7
    verdict = done.stderr[done.stderr.index("tutti: ") :]
    assert re.match(r"tutti: rank 2 failed first: exit code 7, after ", verdict)
    assert "its last lines (stderr):\n    | it broke\n" in verdict
    assert "ended because of it: ranks 0-1,3 (SIGTERM)" in verdict


def test_a_rank_that_is_killed_gives_its_signal(machine: Machine) -> None:
    done = machine("run", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "rank 0 failed first: killed by SIGKILL" in done.stderr


def test_a_command_that_is_not_there_is_127(machine: Machine) -> None:
    done = machine("run", "-n", "2", "--", "no-such-command")
    assert done.returncode == 127
    assert "no-such-command: no such command" in done.stderr


def test_a_run_ends_when_its_time_is_up(machine: Machine) -> None:
    done = machine("run", "--timeout", "200ms", "--", "sleep", "1000")
    assert done.returncode == 124
    assert "the time of 200 ms is up; rank 0 still ran" in done.stderr


def test_one_keeper_serves_job_after_job(machine: Machine) -> None:
    for code in (3, 0, 4, 0):
        script = f"[ $RANK = 1 ] && exit {code}; exec sleep {0 if code == 0 else 1000}"
        assert machine("run", "-n", "3", "--", "sh", "-c", script).returncode == code


def test_interrupting_a_run_ends_its_job(machine: Machine) -> None:
    run = machine.start("run", "-n", "2", "--", "sh", "-c", "echo ready; sleep 1000")
    assert run.stdout is not None
    assert {run.stdout.readline(), run.stdout.readline()} == {"[0] ready\n", "[1] ready\n"}
    run.send_signal(signal.SIGINT)
    _, error = run.communicate()
    assert run.returncode == -signal.SIGINT
    assert "tutti: interrupted by SIGINT; ranks 0-1 still ran" in error
    assert machine.json("jobs", "--all")[0]["state"] == "killed"


def test_a_second_interrupt_kills_at_once(machine: Machine) -> None:
    script = "trap 'echo asked' TERM; echo ready; while true; do sleep 0.05; done"
    run = machine.start("run", "--grace", "1h", "--", "sh", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == "[0] ready\n"
    run.send_signal(signal.SIGINT)
    assert run.stdout.readline() == "[0] asked\n"
    run.send_signal(signal.SIGINT)
    _, error = run.communicate()
    assert run.returncode == -signal.SIGINT
    assert "rank 0 (SIGKILL, when a second signal came)" in error


def test_json_events_are_those_of_a_run_without_a_cluster(machine: Machine) -> None:
    script = "echo $RANK; [ $RANK = 1 ] && exit 1; sleep 1000"
    command = ["run", "-n", "2", "--json", "--", "sh", "-c", script]
    shapes = []
    for where in ("--cluster", "--local"):
        done = machine(command[0], where, *command[1:])
        assert done.returncode == 1
        events = [json.loads(line) for line in done.stdout.splitlines()]
        shapes.append({(event["event"], *sorted(event)) for event in events})
    assert shapes[0] == shapes[1]


def test_much_output_comes_whole(machine: Machine) -> None:
    script = "seq 100000"
    out = machine.well("run", "-n", "2", "--", "sh", "-c", script)
    for rank in range(2):
        lines = [line[4:] for line in out.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines == [str(number) for number in range(1, 100001)]


def test_a_run_that_finds_no_room_says_so_and_waits(machine: Machine) -> None:
    first = machine.submit("sleep 1000", "-n", "8")
    machine.wait_for(first, "running")
    run = machine.start("run", "--", "echo", "at last")
    assert run.stderr is not None
    assert "waits: 1 of 1 processes of role 'rank' have no place" in run.stderr.readline()
    machine.well("kill", str(first))
    out, _ = run.communicate()
    assert (run.returncode, out) == (0, "[0] at last\n")


# Job files ----------------------------------------------------------------------------------------

JOB = """
name = "pair"
[task.prepare]
command = "echo prepared"
[gang.worker]
count = 2
needs = ["prepare"]
command = "echo worker $RANK of $WORLD_SIZE"
"""


def test_a_job_file_runs_with_the_names_of_its_roles(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "pair.toml"
    file.write_text(JOB)
    assert sorted(machine.well("run", file).splitlines()) == [
        "[prepare 0] prepared",
        "[worker 0]  worker 0 of 2",
        "[worker 1]  worker 1 of 2",
    ]


def test_what_a_job_file_sets_counts_more_than_what_its_caller_has(
    machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "colours.toml"
    file.write_text("""
        name = "colours"
        environment = { COLOUR = "green" }
        [task.say]
        command = "echo $COLOUR $TASTE"
    """)
    machine.environment |= {"COLOUR": "red", "TASTE": "sour"}
    assert machine.well("run", "--no-prefix", file) == "green sour\n"


def test_mistakes_in_a_job_file_are_told_with_their_lines(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\n[gang.worker]\ncomand = "true"\n')
    for verb in ("run", "submit"):
        done = machine(verb, file)
        assert done.returncode == 1
        complaint = "bad.toml:3: unknown key 'gang.worker.comand'; did you mean 'command'?"
        assert complaint in done.stderr
    assert machine.json("jobs", "--all") == []


# Looking and touching -----------------------------------------------------------------------------


def test_jobs_lists_those_that_run_and_with_all_those_that_ended(machine: Machine) -> None:
    machine.well("run", "--", "true")
    second = machine.submit("sleep 1000")
    machine.wait_for(second, "running")
    assert [job["job"] for job in machine.json("jobs")] == [second]
    assert [job["state"] for job in machine.json("jobs", "--all")] == ["running", "succeeded"]
    lines = machine.well("jobs", "--all").splitlines()
    columns = ["JOB", "NAME", "STATE", "PROCESSES", "RESTARTS", "AGE", "USER", "WHY"]
    assert lines[0].split() == columns
    assert lines[1].split()[:4] == ["2", "sh", "running", "1"]
    assert "\033" not in "".join(lines)


def test_ps_folds_processes_that_are_alike(machine: Machine) -> None:
    job = machine.submit("sleep 1000", "-n", "4")
    machine.wait_for(job, "running")
    processes = machine.json("ps", str(job))
    assert [p["rank"] for p in processes] == [0, 1, 2, 3]
    pids = " ".join(str(process["pid"]) for process in processes)
    tree = machine.well("ps").splitlines()
    assert tree[:2] == [f"job {job} sh (running)", "  rank"]
    assert tree[3].split(maxsplit=4) == ["one", "0-3", "running", "-", pids]


def test_kill_ends_a_job_and_waits_until_it_is_gone(machine: Machine) -> None:
    job = machine.submit("trap '' TERM; while true; do sleep 0.05; done", "--grace", "1h")
    machine.wait_for(job, "running")
    pid = machine.json("ps")[0]["pid"]
    assert machine.json("kill", str(job), "--grace", "50ms")["state"] == "killed"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    done = machine("kill", "4711")
    assert done.returncode == 1
    assert "there is no job 4711; see `tutti jobs --all`" in done.stderr


def test_a_run_that_somebody_else_kills_says_so(machine: Machine) -> None:
    run = machine.start("run", "--", "sh", "-c", "echo ready; sleep 1000")
    assert run.stdout is not None
    assert run.stdout.readline() == "[0] ready\n"
    machine.well("kill", "1")
    _, error = run.communicate()
    assert run.returncode == 128 + signal.SIGTERM
    assert "killed by root, with `tutti kill`" in error


def test_a_signal_reaches_the_ranks_it_is_for(machine: Machine) -> None:
    script = "trap 'exit 0' USR1; while true; do sleep 0.05; done"
    job = machine.submit(script, "-n", "4")
    machine.wait_for(job, "running")
    machine.well("signal", str(job), "SIGUSR1", "--rank", "0,2-3")

    def ended() -> list[int]:
        return [p["rank"] for p in machine.json("ps") if p["state"] == "exited"]

    wait_until(lambda: ended() == [0, 2, 3], "three ranks have ended")
    assert machine.json("signal", str(job), "10") == {"job": job, "sent": 10}
    machine.wait_for(job, "succeeded")
    done = machine("signal", str(job), "SIGNOTHING")
    assert done.returncode == 2
    assert "write it as SIGUSR1" in done.stderr


def test_the_verdict_names_who_sent_the_signal(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    script = (
        f"[ -e {tmp_path}/first ] || echo of the first life; touch {tmp_path}/first; sleep 1000"
    )
    file.write_text(f"""
        name = "signalled"
        grace = "1s"
        [gang.worker]
        command = "{script}"
        restarts = {{ killed = 1, delay = "0s" }}
    """)
    run = machine.start("run", file)
    wait_until((tmp_path / "first").exists, "it has printed")
    for epoch in (1, 2):
        wait_until(lambda: running_in(machine) == epoch, "it runs")  # noqa: B023
        machine.well("signal", "1", "KILL", "--rank", "worker/0")
    _, error = run.communicate()
    assert run.returncode == 128 + signal.SIGKILL
    assert "who killed it: root, with `tutti signal`" in error
    assert "ended because of it" not in error
    assert "its last lines: none, it printed nothing" in error
    assert machine.job(1)["why"].startswith("killed: by root, with `tutti signal`")


def running_in(machine: Machine) -> int:
    """The epoch of the only process, if that runs."""
    return max(
        (p["epoch"] % 2**32 for p in machine.json("ps") if p["state"] == "running"), default=0
    )


def test_a_sidecar_starts_with_its_role(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f"""
        name = "beside"
        [task.prepare]
        command = "sleep 0.5; echo prepared >> {tmp_path}/order"
        [gang.worker]
        needs = ["prepare"]
        command = "while ! grep -q watching {tmp_path}/order; do sleep 0.01; done"
        [sidecar.watch]
        beside = "worker"
        command = "echo watching >> {tmp_path}/order; sleep 1000"
    """)
    machine.well("run", file)
    assert (tmp_path / "order").read_text().split() == ["prepared", "watching"]


def test_when_restarts_are_used_up_more_is_started_again(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    lives = tmp_path / "lives"
    file.write_text(f"""
        name = "stubborn"
        [gang.worker]
        count = 3
        strategy = "one_for_one"
        command = "echo $RANK >> {lives}; [ $RANK != 1 ] || kill -9 $$; sleep 1000"
        restarts = {{ killed = 1, delay = "0s" }}
        escalate = {{ role = 1 }}
    """)
    done = machine("run", file)
    assert done.returncode == 128 + signal.SIGKILL
    assert lives.read_text().split().count("1") == 4  # twice before and after that of the role
    assert machine.job(1)["why"].endswith("and those of its role are used up")


def test_whoever_waited_behind_a_job_that_is_killed_in_the_queue_starts(machine: Machine) -> None:
    running = machine.submit("sleep 1000", "-n", "6")
    machine.wait_for(running, "running")
    in_front = machine.submit("sleep 1000", "-n", "8")
    behind = machine.submit("sleep 1000")
    assert machine.job(behind)["state"] == "queued"
    machine.well("kill", str(in_front))
    machine.wait_for(behind, "running")
    last = machine.submit("true")
    machine.wait_for(last, "succeeded")


# Many jobs ----------------------------------------------------------------------------------------


def test_an_array_is_a_job_for_each_number(machine: Machine, tmp_path: Path) -> None:
    script = f"echo $TUTTI_ARRAY_INDEX > {tmp_path}/$TUTTI_ARRAY_INDEX"
    numbers = machine.well("submit", "--array", "1,3-5", "--", "sh", "-c", script).split()
    assert len(set(numbers)) == 4
    for number in numbers:
        machine.wait_for(int(number), "succeeded")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3", "4", "5"]
    names = {machine.job(int(number))["name"] for number in numbers}
    assert names == {"sh.1", "sh.3", "sh.4", "sh.5"}


def test_waiting_for_many_tells_of_those_that_fail(machine: Machine) -> None:
    script = "[ $TUTTI_ARRAY_INDEX != 7 ]"
    done = machine("submit", "--array", "0-99", "--wait", "--", "sh", "-c", script)
    assert done.returncode == 1, done.stderr
    *failed, ends = done.stdout.splitlines()
    assert len(failed) == 1 and "(sh.7): failed" in failed[0]
    assert ends == "99 succeeded, 1 failed"
    assert machine.json("ps") == []


def test_several_job_files_are_submitted_together(machine: Machine, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\n[task.a]\ncommand = ["true"]\n')
    done = machine("submit", "--wait", "--json", "one.toml", "two.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((end["name"], end["state"]) for end in ends) == [
        ("one", "succeeded"),
        ("two", "succeeded"),
    ]


def test_those_of_an_array_that_cannot_run_anywhere_are_refused(machine: Machine) -> None:
    done = machine("submit", "--array", "0-2", "-n", "100", "--", "true")
    assert done.returncode == 1
    assert "3 of 3 jobs were refused" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "--array", "x"], "--array x: write the numbers of the jobs: --array 0-99"),
        (["submit", "--array", "0-100000"], "100001 jobs, and 100000 can be submitted at once"),
        (["run", "--wait"], "--wait is an option of `tutti submit`"),
    ],
)
def test_wrong_options_for_many_jobs(machine: Machine, words: list[str], message: str) -> None:
    done = machine(*words, "--", "true")
    assert done.returncode == 2
    assert message in done.stderr


def test_a_small_job_that_leaves_a_daemon_has_it_ended_and_others_follow(
    machine: Machine, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    script = f"[ $TUTTI_ARRAY_INDEX != 3 ] || {{ setsid sleep 1000 & echo $! > {pid}; }}"
    machine.well("submit", "--array", "0-20", "--wait", "--", "sh", "-c", script)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    machine.well("submit", "--array", "0-20", "--wait", "--", "true")


def test_a_head_that_is_started_anew_keeps_what_was_submitted(machine: Machine) -> None:
    waiting = machine.start("submit", "--array", "0-199", "--wait", "--", "sleep", "0.05")
    wait_until(lambda: len(machine.json("jobs", "--all")) > 20, "some were submitted")
    os.kill(machine.pid("head"), signal.SIGKILL)
    machine.well("up")
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, err
    assert out.splitlines()[-1] == "200 succeeded"
    assert len(machine.json("jobs", "--all")) == 200
