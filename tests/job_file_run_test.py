"""`tutti run JOB.toml`: its options, and how it names the processes of several roles."""

import json
from pathlib import Path

import pytest
from cluster_tools import Machine
from run_tools import tutti

ROLES = """
name = "roles"
[gang.worker]
count = 2
command = ["sh", "-c", "{work}"]
[service.watch]
count = 1
command = {watch}
restarts = {{ delay = "10ms" }}
"""


def job(folder: Path, work: str, watch: str = '["sleep", "1000"]') -> Path:
    file = folder / "job.toml"
    file.write_text(ROLES.format(work=work, watch=watch))
    return file


def sleeper(folder: Path) -> Path:
    file = folder / "sleeper.toml"
    file.write_text('name = "sleeper"\n[gang.worker]\ncount = 1\ncommand = ["sleep", "1000"]\n')
    return file


@pytest.mark.parametrize("before", [False, True])
def test_options_count_before_and_after_a_job_file(tmp_path: Path, before: bool) -> None:
    options = ["--timeout", "300ms"]
    file = sleeper(tmp_path)
    done = tutti(*(options if before else []), file, *([] if before else options))
    assert done.returncode == 124, done.stderr
    assert "the time of 300 ms is up" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "4"], "says how many there are; change `count` in it"),
        (["--steps=3"], "there is no option '--steps'"),
        (["train.py"], "'train.py' after job file"),
        (["other.toml"], "`tutti submit` takes many"),
    ],
)
def test_what_a_job_file_does_not_take_is_refused(
    tmp_path: Path, words: list[str], told: str
) -> None:
    done = tutti(sleeper(tmp_path), *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_events_name_processes_by_role_and_rank_within_it(tmp_path: Path) -> None:
    done = tutti("--json", job(tmp_path, "echo $RANK; exit 3"))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = {("worker", 0, "worker 0", 0), ("worker", 1, "worker 1", 1), ("watch", 0, "watch 0", 2)}
    verdict = events.pop()
    for event in [*events, *verdict["ranks"]]:
        assert (event["role"], event["rank"], event["name"], event["process"]) in names
    printed = [event for event in events if event["event"] == "output"]
    assert all(event["text"] == str(event["rank"]) for event in printed)
    assert verdict["culprit_role"] == "worker"
    assert verdict["culprit_name"] == f"worker {verdict['culprit']}"
    assert verdict["culprit_process"] == verdict["culprit"]
    assert "ended_ranks" not in verdict


def test_a_service_that_cannot_start_is_named_by_its_role(tmp_path: Path) -> None:
    done = tutti(job(tmp_path, "sleep 1000", watch='["/nonexistent/program"]'))
    assert done.returncode == 127, done.stderr
    assert "tutti: start watch 0: /nonexistent/program: no such file" in done.stderr


def test_a_folder_is_no_program(machine: Machine, tmp_path: Path) -> None:
    for verb in ("submit", "run"):
        done = machine(verb, tmp_path)
        assert done.returncode != 0
        assert f"{tmp_path} is a folder, not a program" in done.stderr
    assert machine("submit", ".", cwd=tmp_path).returncode != 0
    assert machine.json("jobs", "--all") == []
