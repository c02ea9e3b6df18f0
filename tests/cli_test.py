"""The `tutti` command, run as a person runs it."""

import subprocess
from pathlib import Path

import tutti

TUTTI = Path(__file__).resolve().parent.parent / "build/release/tutti"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TUTTI, *words], capture_output=True, text=True, timeout=60)


def test_version_is_the_one_python_reports() -> None:
    for word in ("version", "--version"):
        assert run(word).stdout == f"tutti {tutti.__version__}\n"


def test_without_a_command_it_shows_help() -> None:
    done = run()
    assert done.returncode == 0
    assert "usage: tutti COMMAND" in done.stdout
    assert done.stdout == run("help").stdout == run("-h").stdout


def test_a_mistyped_command_is_refused_with_the_right_one() -> None:
    done = run("verison")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "tutti: there is no command 'verison'; did you mean: tutti version\n"
