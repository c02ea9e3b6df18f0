"""A job file without a cluster: `tutti run` brings its own, and nothing of it is left."""

import os
import signal
from pathlib import Path

import pytest
from run_tools import Marked

JOB = """
name = "alone"
grace = "200ms"
[task.prepare]
command = "echo prepared > made"
[service.data]
needs = ["prepare"]
command = ["sleep", "1000"]
health = { command = "test -e made" }
[gang.worker]
count = 3
slots = 7
needs = ["data"]
command = "cat made; %s"
[sidecar.watcher]
beside = "worker"
command = ["sleep", "1000"]
"""
FOREVER = "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000"


def job(folder: Path, last_words: str) -> Path:
    file = folder / "job.toml"
    file.write_text(JOB % last_words)
    return file


def homes(gang: Marked) -> set[str]:
    """State folders of the programs that were started for the run."""
    found = set()
    for line in gang.living():
        try:
            settings = Path(f"/proc/{line.split()[0]}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        paths = {one[11:].decode() for one in settings if one.startswith(b"TUTTI_HOME=")}
        found |= {path for path in paths if path.startswith("/tmp/tutti-run-")}
    return found


@pytest.mark.parametrize("code", [0, 3])
def test_all_its_roles_run_and_its_end_is_told(gang: Marked, tmp_path: Path, code: int) -> None:
    words = f"echo home=$TUTTI_EXCHANGE; sleep 0.2; [ $RANK != 1 ] || exit {code}; sleep 0.1"
    run = gang.start(job(tmp_path, words), cwd=tmp_path)
    output, error = run.communicate(timeout=100)
    assert run.returncode == code, error
    assert sorted(line for line in output.splitlines() if "prepared" in line) == [
        f"[worker {rank}]  prepared" for rank in range(3)
    ]
    gang.all_gone()
    folder = Path(output.split("home=")[1].split()[0]).parent.parent
    assert str(folder).startswith("/tmp/tutti-run-")
    assert not folder.exists()


def begin(gang: Marked, tmp_path: Path) -> tuple[object, str]:
    run = gang.start(job(tmp_path, FOREVER), cwd=tmp_path)
    assert run.stdout is not None
    for _ in range(3):
        assert "prepared" in run.stdout.readline()
    (folder,) = homes(gang)
    assert Path(folder).exists()
    return run, folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_run_is_ended(
    gang: Marked, tmp_path: Path, number: signal.Signals
) -> None:
    run, folder = begin(gang, tmp_path)
    run.send_signal(number)
    run.communicate(timeout=100)
    assert run.returncode == -number
    gang.all_gone()
    assert not Path(folder).exists()


@pytest.mark.parametrize("program", ["head", "agent"])
def test_no_process_is_left_when_one_of_its_programs_is_killed_with_it(
    gang: Marked, tmp_path: Path, program: str
) -> None:
    run, folder = begin(gang, tmp_path)
    pid = int((Path(folder) / program / "pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    run.kill()
    run.communicate(timeout=100)
    gang.all_gone()


def test_a_mistake_in_the_file_is_told_before_anything_starts(gang: Marked, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('name = "x"\n[gang.worker]\ncomand = ["true"]\n')
    run = gang.start(file)
    _, error = run.communicate(timeout=100)
    assert run.returncode != 0
    assert "job.toml:3: unknown key 'gang.worker.comand'; did you mean 'command'?" in error
    assert not gang.living()
