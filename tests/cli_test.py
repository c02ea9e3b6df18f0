"""The `tutti` command, run as a person runs it."""

import os
import subprocess
from pathlib import Path

import pytest
import tutti

TUTTI = Path(__file__).resolve().parent.parent / "build/release/tutti"


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUTTI, *words], capture_output=True, text=True, timeout=60, env=os.environ | env
    )


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


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("kill", "abc"), "tutti kill: JOB: 'abc' is not a number; tutti kill --help says"),
        (("kill",), "tutti kill: JOB is required; tutti kill --help says"),
        (("ps", "--foo"), "tutti ps: The following argument was not expected: --foo; tutti ps"),
        (("up", "--slots", "0"), "tutti up: --slots: Value 0 not in range 1 to 100000; tutti up"),
    ],
)
def test_wrong_arguments_are_told_with_the_verb_and_where_to_look(
    words: tuple[str, ...], error: str
) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(error)


def test_a_folder_that_cannot_be_made_is_told_with_what_to_set() -> None:
    done = run("up", TUTTI_HOME="/proc/nowhere")
    assert done.returncode == 1
    assert "set TUTTI_HOME to a folder that you may write" in done.stderr
