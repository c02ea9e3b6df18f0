"""Control pages and spares, as real programs in C and Python see them."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tutti
from keeper_tools import NOTHING, UNSUPPORTED, Keeper
from run_tools import Marked, wait_until

ROOT = Path(__file__).resolve().parent.parent
PAGE = tutti.control.PAGE_BYTES
EPOCH = 7 << 32 | 1
SLEEPER = ["sleep", "1000"]


@pytest.fixture
def keeper(gang: Marked) -> Iterator[Keeper]:
    environment = gang.environment | {"PYTHONPATH": str(ROOT / "python")}
    keeper = Keeper(environment)
    yield keeper
    keeper.close()


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("examples") / "control_page"
    source = ROOT / "examples/control_page.c"
    strict = ("-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}")
    subprocess.run(["g++", "-x", "c++", "-std=c++17", *strict, "-fsyntax-only", source], check=True)
    subprocess.run(["gcc", "-std=c11", *strict, source, "-o", program], check=True)
    return program


def read_line(fd: int) -> str:
    os.set_blocking(fd, True)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        assert byte, f"the output ends with {line!r}"
        line += byte
    return line.decode()


def read_all(fd: int) -> str:
    os.set_blocking(fd, True)
    with open(fd, closefd=True) as stream:
        return stream.read()


def rank(number: int, *environment: str) -> dict:
    return {1: number, 2: list(environment), 5: number * PAGE}


def spare(number: int) -> dict:
    return {1: number, 4: 1}


def test_a_program_in_c_sees_its_siblings_death(keeper: Keeper, example: Path) -> None:
    arena = keeper.create_arena("pages", 4 * PAGE)
    out, _ = keeper.spawn([example], [rank(0)], arena="pages", epoch=EPOCH)
    keeper.spawn(SLEEPER, [rank(2), rank(3)], arena="pages", epoch=EPOCH, output=NOTHING)
    assert read_line(out) == f"rank 0 works in epoch {EPOCH}\n"
    page = tutti.control.Page(arena, 0)
    wait_until(lambda: page.step >= 3, "the rank gets somewhere")
    assert page.rank == 0
    assert not page.aborted
    keeper.kill(2)
    assert keeper.exit()[2] == [2]
    assert page.aborted
    assert page.dead == {2}
    assert read_all(out) == "lost: 2-2\n"
    assert keeper.exit()[4] == [0]


WATCHER = """
import tutti
page = tutti.control.page()
epoch = page.epoch
page.step = 12
page.phase = 3
page.progress()
print(page.rank, epoch, page.over(epoch), page.dead, flush=True)
while not page.over(epoch):
    page.wait(page.word, 0.01)
print(page.aborted, page.dead, 2 in page.dead, len(page.dead), flush=True)
"""


def test_python_sees_its_siblings_death(keeper: Keeper) -> None:
    arena = keeper.create_arena("pages", 8 * PAGE)
    keeper.spawn(SLEEPER, [rank(2)], arena="pages", epoch=EPOCH, output=NOTHING)
    out, _ = keeper.spawn([sys.executable, "-c", WATCHER], [rank(5)], arena="pages", epoch=EPOCH)
    assert read_line(out) == f"5 {EPOCH} False <ranks none>\n"
    keeper.kill(2)
    assert read_all(out) == "True <ranks 2> True 1\n"
    page = tutti.control.Page(arena, 5 * PAGE)
    assert (page.step, page.phase) == (12, 3)


def test_a_waiter_sleeps_until_something_changes(keeper: Keeper) -> None:
    keeper.create_arena("pages", 2 * PAGE)
    waiter = WATCHER.replace("page.wait(page.word, 0.01)", "page.wait(page.word)")
    keeper.spawn(SLEEPER, [rank(0)], arena="pages", output=NOTHING)
    out, _ = keeper.spawn([sys.executable, "-c", waiter], [rank(1)], arena="pages")
    read_line(out)
    keeper.kill(0)
    assert read_all(out) == "True <ranks 0> False 1\n"


def test_outside_of_a_job_there_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tutti.control.page() is None
    monkeypatch.setenv("TUTTI_CONTROL_FD", "987")
    monkeypatch.setenv("TUTTI_CONTROL_OFFSET", "0")
    with pytest.raises(tutti.Error, match="cannot map the control page"):
        tutti.control.page()


def test_memory_that_is_no_page_is_refused() -> None:
    fd = os.memfd_create("nothing")
    os.ftruncate(fd, 4 * PAGE)
    with pytest.raises(tutti.Error, match="no control page at 2048"):
        tutti.control.Page(fd, 2 * PAGE)
    os.close(fd)


def test_who_died_and_is_back_is_lost_to_earlier_epochs() -> None:
    fd = os.memfd_create("page")
    words = [0] * 128
    words[0] = tutti.control.MAGIC | 1 << 32
    words[5] = 1  # one range of dead
    words[6] = 2  # two of who is back
    words[16] = 3 | 4 << 32
    words[126:128] = 7, 5 | 5 << 32
    words[124:126] = 9, 2 | 3 << 32
    os.write(fd, struct.pack("<128Q", *words))
    page = tutti.control.Page(fd, 0)
    assert page.dead == {3, 4}
    assert page.lost(6) == {2, 3, 4, 5}
    assert len(page.lost(6)) == 4
    assert page.lost(7) == {2, 3, 4}
    assert page.lost(9) == {3, 4}
    os.close(fd)


def test_a_job_within_a_job_inherits_no_page(keeper: Keeper) -> None:
    keeper.environment |= {"TUTTI_CONTROL_FD": "3", "TUTTI_SPARE_FD": "4"}
    out, _ = keeper.spawn(["sh", "-c", "env | grep -c TUTTI_[CS]"], [{1: 0}])
    assert read_all(out) == "0\n"


# Spares -------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys
import tutti
page = tutti.control.page()
print(json.dumps({
    "argv": sys.argv[1:],
    "rank": os.environ.get("RANK"),
    "name": __name__,
    "file": os.path.basename(__file__),
    "path": os.path.basename(sys.path[0]),
    "preloaded": "colorsys" in sys.modules,
    "page": page and [page.rank, page.epoch],
}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_spare_runs_its_script_when_it_has_a_rank(keeper: Keeper, script: Path) -> None:
    keeper.create_arena("pages", 4 * PAGE)
    command = [
        sys.executable,
        "-m",
        "tutti.spare",
        "--preload",
        "json,colorsys",
        script,
        "--common",
    ]
    fds = keeper.spawn(command, [spare(0), spare(1)], arena="pages")
    assign = {1: 1, 2: 3, 3: ["RANK=3", "EMPTY="], 4: ["--lr", "0.1"], 5: 3 * PAGE, 6: EPOCH}
    assert keeper.ask("assign", assign)[0] == "done"
    assert json.loads(read_all(fds[2])) == {
        "argv": ["--common", "--lr", "0.1"],
        "rank": "3",
        "name": "__main__",
        "file": "script.py",
        "path": script.parent.name,
        "preloaded": True,
        "page": [3, EPOCH],
    }
    exit = keeper.exit()
    assert (exit[2], exit[4], exit[12]) == ([3], [0], [0])
    kind, failure, _ = keeper.ask("assign", {1: 1, 2: 4})
    assert kind == "failure"
    assert b"no spare 1" in failure[2][0]


def test_without_a_keeper_a_spare_just_runs_its_script(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tutti.spare", script, "x"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["argv"] == ["x"]
    assert json.loads(done.stdout)["page"] is None


def test_a_spare_whose_keeper_goes_away_exits(script: Path) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tutti.spare", script],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "TUTTI_SPARE_FD": str(reader)},
        pass_fds=[reader],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(reader)
    os.write(writer, b"RANK=1\0\0--cut")
    os.close(writer)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors == "tutti.spare: the keeper has gone away\n"


# Versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["keeper", "controller"])
def test_version_1_is_spoken_with_either_side(gang: Marked, old: str) -> None:
    options = ("--speak", "1") if old == "keeper" else ()
    keeper = Keeper(gang.environment, *options, highest=2 if old == "keeper" else 1)
    assert keeper.version == 1
    for kind, fields in (("reset", {}), ("assign", {1: 0, 2: 0}), ("end", {3: [0]})):
        answer, failure, _ = keeper.ask(kind, fields)
        assert (answer, failure[1]) == ("failure", [UNSUPPORTED])
    keeper.spawn(SLEEPER, [{1: 0}], output=NOTHING)
    keeper.kill(0)
    assert keeper.exit()[2] == [0]
    keeper.close()


@pytest.mark.parametrize("grouped", [True, False], ids=["cgroup", "no-cgroup"])
def test_one_keeper_runs_job_after_job(gang: Marked, grouped: bool) -> None:
    options = ("--group", f"test-{gang.mark}") if grouped else ()
    keeper = Keeper(gang.environment, *options)
    for _ in range(3):
        keeper.create_arena("pages", PAGE)
        script = "setsid sleep 1000 & echo up; sleep 1000"
        out, _ = keeper.spawn(["sh", "-c", script], [rank(0)], arena="pages")
        assert read_line(out) == "up\n"
        assert keeper.ask("reset", {})[0] == "done"
        wait_until(lambda: len(gang.living()) == 1, "only the keeper is left")
        assert keeper.ask("list", {})[1] == {2: [1]}
        assert keeper.receive()[0] == "arenas"
    keeper.close()
