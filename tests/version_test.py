"""Programs of different versions: one apart they work, two apart they say who is too old."""

from pathlib import Path

import pytest
from cluster_tools import Cluster, Machine
from keeper_tools import Keeper
from run_tools import Marked, wait_until

SCRIPT = "echo $RANK >> {folder}/starts; until [ -e {folder}/flag ]; do sleep 0.02; done"


def up(cluster: Cluster, **settings: str) -> Machine:
    machine = cluster.head
    machine.environment |= settings
    machine.well("up", "--name", "one", "--slots", "4")
    return machine


def pids(machine: Machine) -> list[int]:
    return sorted(process["pid"] for process in machine.json("ps"))


def use(machine: Machine) -> None:
    """Whatever an agent asks of its keepers: to start, restart, signal, end, and the next job."""
    ready = machine.home / "ready"
    ready.unlink(missing_ok=True)
    script = f"trap 'exit 0' USR1; echo up >> {ready}; while :; do sleep 0.02; done"
    job = machine.submit(script, "-n", "2")
    wait_until(lambda: ready.exists() and ready.read_text() == "up\n" * 2, "both are ready")
    wait_until(lambda: len(pids(machine)) == 2, "both run")
    machine.well("signal", str(job), "USR1")
    machine.wait_for(job, "succeeded")
    endless = machine.submit("sleep 1000")
    wait_until(lambda: len(pids(machine)) == 1, "it runs")
    machine.well("kill", str(endless))
    machine.wait_for(endless, "killed")
    once = machine.home / "once"
    once.unlink(missing_ok=True)
    file = machine.home / "again.toml"
    command = f"[ -e {once} ] || {{ touch {once}; kill -9 $$; }}"
    file.write_text(f'name = "again"\n[gang.worker]\ncommand = "{command}"\n')
    again = int(machine.well("submit", file))
    assert machine.wait_for(again, "succeeded")["restarts"] == 1


@pytest.mark.parametrize(
    "settings",
    [{"TUTTI_TEST_KEEPERS_SPEAK": "2"}, {"TUTTI_TEST_AGENT_SPEAKS": "2"}, {}],
    ids=["old keepers", "old agent", "same"],
)
def test_an_agent_and_keepers_one_version_apart_work_together(
    empty_cluster: Cluster, settings: dict[str, str]
) -> None:
    use(up(empty_cluster, **settings))


@pytest.mark.parametrize(
    ("before", "after"),
    [({"TUTTI_TEST_AGENT_SPEAKS": "2", "TUTTI_TEST_KEEPERS_SPEAK": "2"}, {}),
     ({}, {"TUTTI_TEST_AGENT_SPEAKS": "2"})],
    ids=["upgrade", "downgrade"],
)  # fmt: skip
def test_an_agent_of_another_version_takes_over_and_touches_no_process(
    empty_cluster: Cluster, tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    machine = up(empty_cluster, **before)
    job = machine.submit(SCRIPT.format(folder=tmp_path), "-n", "2")
    starts = tmp_path / "starts"
    wait_until(lambda: starts.exists() and len(starts.read_text().split()) == 2, "both began")
    running = pids(machine)
    machine.well("down", "--keep-jobs")
    for name in before:
        del machine.environment[name]
    machine.environment |= after
    machine.well("up")
    wait_until(lambda: pids(machine) == running, "they are found again")
    (tmp_path / "flag").touch()
    assert machine.wait_for(job, "succeeded")["restarts"] == 0
    assert sorted(starts.read_text().split()) == ["0", "1"]
    use(machine)


@pytest.mark.parametrize(
    ("head", "agent"), [("1-1", "1-2"), ("1-2", "1-1")], ids=["old head", "old agent"]
)
def test_a_head_and_an_agent_one_version_apart_work_together(
    empty_cluster: Cluster, head: str, agent: str
) -> None:
    machine = up(empty_cluster, TUTTI_TEST_TREE_SPEAKS=head)
    other = empty_cluster.add()
    other.environment["TUTTI_TEST_TREE_SPEAKS"] = agent
    address, token = empty_cluster.token()
    other.well("join", address, "--token", token, "--name", "two", "--slots", "4")
    where = machine.well("run", "--no-prefix", "-n", "8", "--", "sh", "-c", "echo $GROUP_RANK")
    assert sorted(where.split()) == ["0"] * 4 + ["1"] * 4
    use(machine)
    job = machine.submit("sleep 1000", "-n", "8")
    machine.wait_for(job, "running")
    # Each of them is started anew, and finds the other again.
    for one, program in ((other, "agent"), (machine, "head")):
        one.kill_hard(program)
        one.well("up")
        wait_until(lambda: len(pids(machine)) == 8, "all of it is found again")
    assert machine.job(job)["restarts"] == 0
    machine.well("kill", str(job))


def test_a_head_and_an_agent_that_share_no_version_say_who_is_too_old(
    empty_cluster: Cluster,
) -> None:
    machine = up(empty_cluster)
    other = empty_cluster.add()
    other.environment["TUTTI_TEST_TREE_SPEAKS"] = "2-3"
    address, token = empty_cluster.token()
    done = other("join", address, "--token", token, "--name", "two", "--slots", "4")
    assert done.returncode != 0
    told = "two 0.1.0 speaks protocol versions 2 to 3, head 0.1.0 speaks 1 to 1: upgrade the older"
    wait_until(lambda: told in machine.logs(), "the head says who")
    use(machine)


def test_keepers_two_versions_older_are_refused_and_the_words_say_what_to_do(
    empty_cluster: Cluster,
) -> None:
    machine = up(empty_cluster, TUTTI_TEST_KEEPERS_SPEAK="1")
    done = machine("run", "--", "true")
    assert done.returncode != 0
    assert machine.job(1)["state"] == "failed"
    assert "speaks versions 2 to 3 of the keeper's protocol" in done.stderr
    assert "the keeper is too old" in done.stderr
    assert "let the job end under the tutti that began it, then upgrade" in done.stderr


def test_a_controller_two_versions_newer_or_older_hears_who_is_too_old(gang: Marked) -> None:
    with pytest.raises(AssertionError) as newer:
        Keeper(gang.environment, lowest=4, highest=5)
    assert "'test' speaks versions 4 to 5" in str(newer.value)
    assert "the keeper is too old" in str(newer.value)
    with pytest.raises(AssertionError) as older:
        Keeper(gang.environment, lowest=0, highest=0)
    assert "upgrade 'test'" in str(older.value)
    gang.all_gone()
