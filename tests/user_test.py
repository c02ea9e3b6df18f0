"""Jobs run as whose they are: an agent of root runs each user's jobs as that user, others only
their own; and nobody ends what is another's."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
import tutti
from cluster_tools import Cluster, Machine
from run_tools import ROOT, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

ANN = "daemon"  # accounts that every Linux has
BOB = "bin"


def member(cluster: Cluster, user: str, folder: Path) -> Machine:
    """A user's own machine: it has an agent of no use to anybody else."""
    account = pwd.getpwnam(user)
    machine = cluster.add()
    machine.become(account.pw_uid, folder)
    reply = cluster.head.json("token", "--user", user)
    machine.well("join", reply["head"], "--token", reply["token"], "--name", user, "--slots", "1")
    return machine


@pytest.fixture(autouse=True)
def open_the_way(tmp_path: Path) -> None:
    """To folders of users within this one, which pytest keeps for root."""
    for path in [tmp_path, *tmp_path.parents[:2]]:
        path.chmod(0o755)


@pytest.fixture
def ann(cluster: Cluster, tmp_path: Path) -> Machine:
    """Her own agent is ended: what she submits goes to root's."""
    folder = tmp_path / "ann"
    folder.mkdir()
    machine = member(cluster, ANN, folder)
    machine.folder = folder
    machine.well("down")
    wait_until(lambda: alive(cluster.head) == ["one"], "her agent is gone")
    return machine


def alive(machine: Machine) -> list[str]:
    return sorted(host["name"] for host in machine.json("status")["hosts"] if host["alive"])


def test_a_job_runs_as_its_user(cluster: Cluster, ann: Machine) -> None:
    account = pwd.getpwnam(ANN)
    script = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME"; pwd; touch mine; echo > /dev/stderr'
    done = ann("run", "--no-prefix", "--", "sh", "-c", script, cwd=ann.folder)
    assert done.returncode == 0, done.stderr + cluster.head.logs()
    uid, gid, groups, names, folder = done.stdout.split("\n")[:5]
    assert (int(uid), int(gid)) == (account.pw_uid, account.pw_gid)
    assert "0" not in groups.split()
    assert names == f"{account.pw_dir} {ANN} {ANN}"
    assert folder == str(ann.folder)
    assert (ann.folder / "mine").stat().st_uid == account.pw_uid
    assert cluster.head.job(1)["user"] == ANN


def test_roots_job_runs_as_root_whatever_its_environment_says(machine: Machine) -> None:
    done = machine("run", "--no-prefix", "--", "id", "-un")
    assert done.stdout == "root\n", done.stderr
    assert machine.job(1)["user"] == "root"


def test_its_processes_exchange_through_the_agent_and_others_cannot(
    cluster: Cluster, ann: Machine
) -> None:
    script = "echo $TUTTI_EXCHANGE; echo $TUTTI_CONTROL_FD; until [ -e flag ]; do sleep 0.02; done"
    run = ann.start("run", "--no-prefix", "-n", "1", "--", "sh", "-c", script, cwd=ann.folder)
    assert run.stdout is not None
    name = run.stdout.readline().strip()
    assert name.startswith("@")
    assert run.stdout.readline().strip().isdigit()
    assert "you are uid" in ask_exchange(name, pwd.getpwnam(BOB).pw_uid)
    assert "you are uid" not in ask_exchange(name, pwd.getpwnam(ANN).pw_uid)
    (ann.folder / "flag").touch()
    run.communicate()
    assert run.returncode == 0
    assert "refused a call of another user" in cluster.head.logs()


def ask_exchange(name: str, uid: int) -> str:
    """What the agent says when that user puts a value for job 1."""
    script = f"""
import os, sys
os.setgroups([]); os.setresuid({uid}, {uid}, {uid})
sys.path.insert(0, {str(ROOT / "python")!r})
import types
package = types.ModuleType("tutti"); package.__path__ = [{str(ROOT / "python/tutti")!r}]
sys.modules["tutti"] = package
os.environ |= {{"TUTTI_EXCHANGE": {name!r}, "TUTTI_JOB": "1", "TUTTI_PROCESS": "0",
               "TUTTI_EPOCH": str(1 << 32 | 1)}}
import tutti.exchange
try:
    tutti.exchange.put("k", b"v")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_user_that_the_host_does_not_know_is_told(cluster: Cluster, tmp_path: Path) -> None:
    machine = cluster.add()
    machine.become(54321, tmp_path)
    reply = cluster.head.json("token", "--user", "uid54321")
    machine.well("join", reply["head"], "--token", reply["token"], "--name", "two", "--slots", "1")
    machine.well("down")
    wait_until(lambda: alive(cluster.head) == ["one"], "its own agent is gone")
    done = machine("run", "--", "true", cwd=tmp_path)
    assert done.returncode != 0
    assert "there is no user uid54321" in done.stderr
    assert "make the account there" in done.stderr


def test_an_agent_of_a_user_runs_nobody_elses_jobs(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "bob"
    folder.mkdir()
    bob = member(cluster, BOB, folder)
    assert bob("run", "--no-prefix", "--", "id", "-un", cwd=folder).stdout == f"{BOB}\n"
    full = cluster.head.submit("sleep 1000", "-n", "8")
    cluster.head.wait_for(full, "running")
    assert bob("run", "--", "true", cwd=folder).returncode == 0
    waiting = cluster.head.submit("true")
    assert cluster.head.job(waiting)["state"] == "queued"
    # Who waits for hosts of everybody holds up nobody on hosts that it may not use.
    assert bob("run", "--", "true", cwd=folder).returncode == 0
    assert cluster.head.job(waiting)["state"] == "queued"
    cluster.head.well("kill", str(full))
    cluster.head.wait_for(waiting, "succeeded")
    done = cluster.head("run", "-n", "9", "--", "true")
    assert done.returncode != 0
    assert (
        "together have 8 (1 more are of agents that run as another user than root)" in done.stderr
    )


def test_only_its_owner_and_root_may_signal_or_kill_a_job(
    cluster: Cluster, ann: Machine, tmp_path: Path
) -> None:
    folder = tmp_path / "bob"
    folder.mkdir()
    bob = member(cluster, BOB, folder)
    bob.well("down")
    job = ann.well("submit", "--", "sleep", "1000", cwd=ann.folder).strip()
    wait_until(lambda: len(cluster.head.json("ps")) == 1, "it runs")
    for words in (("kill", job), ("signal", job, "USR1")):
        done = bob(*words)
        assert done.returncode != 0
        assert f"job {job} is {ANN}'s, and you are {BOB}" in done.stderr
        assert f"only {ANN} and root may" in done.stderr
    assert [one["job"] for one in bob.json("jobs")] == [int(job)]
    assert len(bob.json("ps")) == 1
    ann.well("kill", job)
    cluster.head.wait_for(int(job), "killed")
    other = ann.well("submit", "--", "sleep", "1000", cwd=ann.folder).strip()
    cluster.head.well("kill", other)
    cluster.head.wait_for(int(other), "killed")


def lines_for(home: Path, job: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user whose machine this is may read of a job that is over."""
    monkeypatch.setenv("TUTTI_HOME", str(home))
    with tutti.Cluster() as cluster:
        return [line.text for line in cluster.job(int(job)).output()]


def test_only_its_owner_root_and_who_runs_the_head_read_what_a_job_prints(
    cluster: Cluster, ann: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bob"
    folder.mkdir()
    bob = member(cluster, BOB, folder)
    bob.well("down")
    job = ann.well("submit", "--", "echo", "a secret", cwd=ann.folder).strip()
    cluster.head.wait_for(int(job), "succeeded")
    for again in (False, True):
        if again:  # then only the files are left of it
            cluster.head.well("down", "--keep-jobs")
            cluster.head.well("up")
            wait_until(lambda: alive(cluster.head) == ["one"], "the agent is back")
        for machine in (ann, cluster.head):
            assert lines_for(machine.home, job, monkeypatch) == ["a secret"]
        with pytest.raises(tutti.Error) as refused:
            lines_for(bob.home, job, monkeypatch)
        assert refused.value.code == "denied"
        words = f"job {job} is {ANN}'s, and you are {BOB}; only {ANN}, root and"
        assert words in str(refused.value)


def test_who_may_not_read_a_job_is_told_while_it_runs(
    cluster: Cluster, ann: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bob"
    folder.mkdir()
    bob = member(cluster, BOB, folder)
    bob.well("down")
    job = ann.well("submit", "--", "sh", "-c", "echo a secret; sleep 1000", cwd=ann.folder).strip()
    cluster.head.wait_for(int(job), "running")
    with pytest.raises(tutti.Error) as refused:
        lines_for(bob.home, job, monkeypatch)
    assert refused.value.code == "denied"
    assert cluster.head.job(int(job))["state"] == "running"


def test_a_token_makes_nobody_but_its_user(cluster: Cluster, ann: Machine, tmp_path: Path) -> None:
    done = ann("token", "--user", "root")
    assert done.returncode != 0
    assert "give tokens to others" in done.stderr
    reply = cluster.head.json("token", "--user", BOB)
    thief = cluster.add()
    thief.become(pwd.getpwnam("games").pw_uid, tmp_path)
    done = thief("join", reply["head"], "--token", reply["token"], "--name", "x")
    assert done.returncode != 0
    assert f"this token is for {BOB}, and you are games" in done.stderr


def test_nothing_is_left_of_a_job_of_another_user(cluster: Cluster, ann: Machine) -> None:
    script = "setsid sleep 1000 & (sleep 1000 &) ; trap '' TERM; echo up; sleep 1000; sleep 1000"
    job = ann.well("submit", "--", "sh", "-c", script, cwd=ann.folder).strip()
    account = pwd.getpwnam(ANN)

    def theirs() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                ours = entry.name.isdigit() and entry.stat().st_uid == account.pw_uid
                if ours and (entry / "cmdline").read_bytes().startswith(b"sleep"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    wait_until(lambda: len(theirs()) == 3, "all of it runs")
    cluster.head.well("kill", "--grace", "0s", job)
    cluster.head.wait_for(int(job), "killed")
    assert not theirs()
