"""Job files with mistakes, given to the command: each is refused with its line."""

from pathlib import Path

import pytest
from cluster_tools import Machine

HEAD = 'name = "x"\n[gang.worker]\ncommand = ["true"]\n'

MISTAKES = {
    "unknown key": (HEAD + "sice = 3\n", 4, "unknown key"),
    "unknown table": (HEAD + "[gnag.other]\n", 4, "gnag"),
    "negative count": (HEAD + "count = -1\n", 4, "must be from 1"),
    "no process": (HEAD + "count = 0\n", 4, "must be from 1"),
    "huge count": (HEAD + "count = 10000001\n", 4, "to 10000000"),
    "beyond 64 bits": (HEAD + "count = 99999999999999999999\n", 4, ""),
    "count as text": (HEAD + 'count = "3"\n', 4, "count"),
    "count as a fraction": (HEAD + "count = 1.5\n", 4, "count"),
    "negative slots": (HEAD + "slots = -1\n", 4, "must be from 0"),
    "no slot": (HEAD + "slots = 0\n", 4, "slot"),
    "too many slots": (HEAD + "slots = 4097\n", 4, "to 4096"),
    "too many on a host": (HEAD + "per_host = 4097\n", 4, "to 4096"),
    "too many spares": (HEAD + "spares = 257\n", 4, "to 256"),
    "negative time": (HEAD + "hang_after = -5\n", 4, "hang_after"),
    "no time": (HEAD + 'hang_after = "soon"\n', 4, "hang_after"),
    "a role twice": (HEAD + '[task.worker]\ncommand = ["true"]\n', 4, "worker"),
    "a table twice": (HEAD + '[gang.worker]\ncommand = ["true"]\n', 4, ""),
    "needs nobody": (HEAD + 'needs = ["data"]\n', 4, "data"),
    "needs itself": (HEAD + 'needs = ["worker"]\n', 4, "worker"),
    "a ring": (
        HEAD + 'needs = ["a"]\n[task.a]\ncommand = ["true"]\nneeds = ["worker"]\n', 4, "worker"
    ),
    "beside nobody": (HEAD + '[sidecar.s]\ncommand = ["true"]\nbeside = "x"\n', 6, "x"),
    "slots of a sidecar": (
        HEAD + '[sidecar.s]\nbeside = "worker"\ncommand = ["true"]\nslots = 2\n', 7,
        "they take no slots of their own"
    ),
    "an unknown scope": (HEAD + "escalate = { gang = 1 }\n", 4, "gang"),
    "too many escalations": (HEAD + "escalate = { role = 10001 }\n", 4, "10000"),
    "an escalation that is no number": (HEAD + 'escalate = { role = "twice" }\n', 4, "role"),
    "no command": ('name = "x"\n[gang.worker]\ncount = 1\n', 2, "command"),
    "an empty command": ('name = "x"\n[gang.worker]\ncommand = []\n', 3, "command"),
    "no port": (
        HEAD + '[service.s]\ncommand = ["true"]\nhealth = { port = 70000 }\n', 6, "65535"
    ),
    "too many restarts": (HEAD + "restarts = { killed = 10001 }\n", 4, "10000"),
    "an unknown class": (HEAD + "restarts = { bored = 1 }\n", 4, "bored"),
    "an unknown strategy": (HEAD + 'strategy = "all"\n', 4, "strategy"),
    "a variable of ours": (HEAD + 'environment = { RANK = "1" }\n', 4, "RANK"),
    "not TOML": (HEAD + "count = = 3\n", 4, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    import uuid

    from cluster_tools import Cluster

    cluster = Cluster(uuid.uuid4().hex)
    cluster.head.well("up", "--name", "one", "--slots", "8")
    yield cluster.head
    cluster.end()


@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(
    shared: Machine, tmp_path: Path, verb: str, mistake: str
) -> None:
    text, line, words = MISTAKES[mistake]
    file = tmp_path / "bad.toml"
    file.write_text(text)
    done = shared(verb, file)
    assert done.returncode != 0
    told = [one for one in done.stderr.splitlines() if f"bad.toml:{line}:" in one]
    assert told, done.stderr
    assert any(words in one for one in told), done.stderr
    assert shared.json("jobs", "--all") == []


IMPOSSIBLE = {
    "a host each": ("count = 2\nper_host = 1\n", "at most 1 of them on a host", "could hold 1"),
    "all together": ("count = 9\n", "the job takes 9 slots", "together have 8"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_no_host_could_ever_hold_is_refused(
    shared: Machine, tmp_path: Path, case: str
) -> None:
    text, asked, there = IMPOSSIBLE[case]
    file = tmp_path / "large.toml"
    file.write_text(HEAD + text)
    done = shared("submit", file)
    assert done.returncode != 0
    assert asked in done.stderr
    assert there in done.stderr
    assert shared.json("jobs", "--all") == []
