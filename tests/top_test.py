"""tutti top, as a person uses it: a real cluster, a real terminal (tmux), real keys."""

import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from run_tools import PATIENCE_S, TUTTI, marked, wait_until


class Terminal:
    """A pane of a tmux server of its own, with a shell in it."""

    def __init__(self, machine: Machine, columns: int = 100, rows: int = 20) -> None:
        self.socket = f"tutti-{uuid.uuid4().hex}"
        self.environment = machine.environment | {"PS1": "ready> ", "LC_ALL": "C.UTF-8"}
        self.environment.pop("TMUX", None)
        self.environment.pop("NO_COLOR", None)
        self.tmux(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows)),
            *("env", "PS1=ready> ", "sh"),
        )

    def tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-u", "-L", self.socket, *words],
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        ).stdout

    def screen(self, *options: str) -> str:
        return self.tmux("capture-pane", "-p", *options)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.tmux("send-keys", key)

    def run(self, command: str) -> None:
        self.type(command)
        self.press("Enter")

    def shows(self, pattern: str) -> str:
        wait_until(
            lambda: re.search(pattern, self.screen(), re.MULTILINE) is not None,
            f"{pattern!r} on the screen, which is\n{self.screen()}",
        )
        return self.screen()

    def flag(self, name: str) -> str:
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def end(self) -> None:
        self.tmux("kill-server")


@pytest.fixture
def terminal(machine: Machine) -> Iterator[Terminal]:
    assert shutil.which("tmux"), "tmux is missing: tools/setup build installs it"
    terminal = Terminal(machine)
    yield terminal
    terminal.end()


def rows(screen: str, head: str) -> list[list[str]]:
    """The words of the rows below the head of the table."""
    lines = screen.splitlines()
    (top,) = [n for n, line in enumerate(lines) if line.split()[:1] and head in line]
    table = []
    for line in lines[top + 1 :]:
        if not line.strip():
            break
        table.append(line.removeprefix("> ").split())
    return table


def two_jobs(machine: Machine) -> tuple[int, int]:
    first = machine.submit("sleep 1000", "-n", "3")
    second = machine.submit("while :; do :; done", "-n", "1")
    machine.wait_for(first, "running")
    machine.wait_for(second, "running")
    return first, second


def test_one_look_as_text_and_as_json(machine: Machine) -> None:
    first, second = two_jobs(machine)
    text = machine.well("top", "--once")
    assert "hosts 1 up, 0 away  slots 4/8  jobs 2 running, 0 queued  processes 4" in text
    assert [row[:4] for row in rows(text, "STATE")] == [
        [str(second), "sh", "running", "1"],
        [str(first), "sh", "running", "3"],
    ]
    assert "\033" not in text
    looks = [
        json.loads(line)
        for line in machine.well(
            "top", str(second), "--json", "-n", "2", "--every", "300ms"
        ).splitlines()
    ]
    assert [look["slots"]["taken"] for look in looks] == [4, 4]
    (process,) = looks[1]["processes"]
    assert process["cpu_percent"] > 0
    assert process["memory_bytes"] > 0
    os.kill(process["pid"], 0)
    folded = machine.well("top", str(first), "--once")
    assert rows(folded, "STATE")[0][:4] == ["rank", "0-2", "one", "running"]


def test_without_a_terminal_it_says_what_to_write(machine: Machine) -> None:
    done = machine("top", stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "tutti top --once" in done.stderr


def test_drill_in_and_out(machine: Machine, terminal: Terminal) -> None:
    first, second = two_jobs(machine)
    terminal.run(f"{TUTTI} top --every 200ms")
    screen = terminal.shows(r"^> +\d+ +sh +running")
    assert [row[0] for row in rows(screen, "STATE")] == [str(second), str(first)]
    terminal.press("Down", "Enter")
    terminal.shows(rf"^jobs > {first} sh$")
    terminal.shows(r"^> rank +gang +3 +1 +running")
    terminal.press("Enter")
    terminal.shows(rf"^jobs > {first} sh > rank$")
    terminal.shows(r"^> one +0-2 +3 +running")
    terminal.press("Enter")
    terminal.shows(rf"^jobs > {first} sh > rank > one$")
    terminal.shows(r"^> 0-2 +running +\d+ … ")
    terminal.press("f")
    terminal.shows(r"^  2 +running +\d+ ")
    terminal.press("Escape")
    terminal.shows(rf"^jobs > {first} sh > rank$")
    terminal.press("BSpace")
    terminal.shows(rf"^jobs > {first} sh$")
    terminal.press("Escape")
    terminal.shows(rf"^> +{first} +sh")
    terminal.press("?")
    terminal.shows("choose the column to sort by")
    terminal.press("?", "q")
    terminal.shows(r"ready>$")


def test_sort_filter_and_pause(machine: Machine, terminal: Terminal) -> None:
    first, second = two_jobs(machine)
    terminal.run(f"{TUTTI} top --every 200ms")
    terminal.shows(r"JOB▼")
    terminal.press("r")
    assert [row[0] for row in rows(terminal.shows("JOB▲"), "STATE")] == [str(first), str(second)]
    terminal.press("Right", "Right", "Right")
    assert [row[3] for row in rows(terminal.shows("PROCS▲"), "STATE")] == ["1", "3"]
    terminal.press("/")
    terminal.type("no such")
    terminal.shows("nothing with this text")
    terminal.press("Escape", "p")
    terminal.shows(r"^jobs   paused$")
    third = machine.submit("sleep 1000", "-n", "2")
    machine.wait_for(third, "running")
    terminal.press("r")
    screen = terminal.shows("PROCS▼")
    assert [row[0] for row in rows(screen, "STATE")] == [str(first), str(second)]
    terminal.press("p")
    terminal.shows(rf"^[> ] +{third}  sh +running")
    terminal.press("q")
    terminal.shows(r"ready>$")


def test_kill_asks_first(machine: Machine, terminal: Terminal) -> None:
    first, second = two_jobs(machine)
    terminal.run(f"{TUTTI} top --every 200ms")
    terminal.shows(rf"^> +{second} ")
    terminal.press("k")
    terminal.shows(rf"^end job {second}, with its grace\? y/n$")
    terminal.press("n")
    terminal.shows(r"q quit$")
    assert machine.job(second)["state"] == "running"
    terminal.press("k", "y")
    machine.wait_for(second, "killed")
    terminal.shows(rf"^> +{first} ")
    terminal.press("q")
    terminal.shows(r"ready>$")


def test_a_worker_that_is_ended_comes_back_and_its_restarts_are_counted(
    machine: Machine, terminal: Terminal, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text('name = "again"\n[service.data]\ncommand = ["sleep", "1000"]\n')
    number = int(machine.well("submit", job))
    machine.wait_for(number, "running")
    terminal.run(f"{TUTTI} top {number} --every 200ms")
    terminal.shows(r"^> data +service +1 +1 +running")
    terminal.press("Enter", "Enter")
    terminal.shows(r"^> 0 +running +\d+ .* 0 +1\.1 ")
    terminal.press("k")
    terminal.shows(rf"^send SIGTERM to data 0 of job {number}\? y/n$")
    terminal.press("y")
    terminal.shows(r"^> 0 +running +\d+ .* 1 +1\.\d+ ")
    terminal.press("q")
    terminal.shows(r"ready>$")


def test_it_follows_the_size_of_the_terminal(machine: Machine, terminal: Terminal) -> None:
    two_jobs(machine)
    terminal.run(f"{TUTTI} top --every 200ms")
    terminal.shows(r"AGE.*WHY")
    terminal.tmux("resize-window", "-x", "60", "-y", "10")
    wait_until(lambda: "WHY" not in terminal.screen(), "columns that have no room are left out")
    screen = terminal.shows(r"^> +\d+ +sh +running")
    assert max(map(len, screen.splitlines())) <= 60
    terminal.tmux("resize-window", "-x", "20", "-y", "3")
    terminal.press("Down", "Up")
    terminal.tmux("resize-window", "-x", "120", "-y", "30")
    terminal.shows(r"AGE.*WHY")
    terminal.press("q")
    terminal.shows(r"ready>$")


def test_colour_is_for_those_who_want_it(machine: Machine, terminal: Terminal) -> None:
    two_jobs(machine)
    terminal.run(f"{TUTTI} top")
    terminal.shows(r"^> +\d+ +sh +running")
    assert "\033[32m" in terminal.screen("-e")
    terminal.press("q")
    terminal.shows(r"ready>$")
    terminal.run(f"NO_COLOR=1 {TUTTI} top")
    terminal.shows(r"^> +\d+ +sh +running")
    assert "\033[" not in terminal.screen("-e")
    terminal.press("q")
    terminal.shows(r"ready>$")


def pid_of_top(cluster: Cluster) -> int:
    (line,) = [line for line in marked(cluster.mark) if re.search(r"tutti top ?", line)]
    return int(line.split()[0])


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP]
)
def test_the_terminal_is_as_before_however_it_ends(
    cluster: Cluster, terminal: Terminal, number: signal.Signals, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    terminal.run(f"ulimit -c 0; stty -a > {before}")
    terminal.run(f"{TUTTI} top")
    terminal.shows("nothing here")
    assert terminal.flag("alternate_on") == "1"
    assert terminal.flag("cursor_flag") == "0"
    os.kill(pid_of_top(cluster), number)
    terminal.shows(r"ready>$")
    terminal.run(f"stty -a | cmp - {before} && echo same terminal")
    terminal.shows(r"^same terminal$")
    assert terminal.flag("alternate_on") == "0"
    assert terminal.flag("cursor_flag") == "1"


def test_it_can_be_stopped_and_continued(machine: Machine, terminal: Terminal) -> None:
    terminal.run("set -m")
    terminal.run(f"{TUTTI} top")
    terminal.shows("nothing here")
    terminal.press("C-z")
    terminal.shows("[Ss]topped")
    assert terminal.flag("alternate_on") == "0"
    terminal.run("fg")
    terminal.shows("nothing here")
    terminal.press("C-c")
    terminal.shows(r"ready>$")


def test_it_outlives_a_head_that_comes_back(machine: Machine, terminal: Terminal) -> None:
    two_jobs(machine)
    terminal.run(f"{TUTTI} top --every 200ms")
    terminal.shows(r"^> +\d+ +sh +running")
    machine.kill_hard("head")
    terminal.shows(r"(refused|closed|No such file|gone|does not answer|unavailable)")
    machine.well("up")
    terminal.shows(r"q quit$")
    terminal.shows(r"^> +\d+ +sh +running")
    terminal.press("q")
    terminal.shows(r"ready>$")
